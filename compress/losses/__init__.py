"""Distillation losses: pure functions of tensors, one file each, in one explicit table.

Each is a mean over rows, so that a batch may be split anywhere (over processes, over accumulation) without changing
the sum. A new loss is a file with a function, and its line here; what it needs is observed in student and teacher at
the mapped layers. The table is light, because recipes and plans read it: a function is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LOSSES", "AnswerLoss", "LayerLoss", "Part"]

Part = Literal["hidden", "query", "key", "value"]
"""What of a layer can be observed."""


@dataclass(frozen=True)
class AnswerLoss:
    """Compares what the models answer."""

    path: str
    """`module:function`."""
    about: str

    @cached_property
    def function(self) -> Callable[[Tensor, Tensor, float, str], Tensor]:
        """(student's logits, teacher's logits, temperature, transformers' problem type) -> mean over rows."""
        found: Callable[[Tensor, Tensor, float, str], Tensor] = resolve_name(self.path)
        return found


@dataclass(frozen=True)
class LayerLoss:
    """Compares a student layer with the teacher layer it is mapped to."""

    path: str
    """`module:function`."""
    about: str
    needs: tuple[Part, ...]

    @cached_property
    def function(self) -> Callable[[Mapping[str, Tensor], Mapping[str, Tensor], Tensor], Tensor]:
        """(student's parts, teacher's parts, mask) -> mean over rows."""
        found: Callable[[Mapping[str, Tensor], Mapping[str, Tensor], Tensor], Tensor] = resolve_name(self.path)
        return found


LOSSES: Mapping[str, AnswerLoss | LayerLoss] = {
    "soft_label": AnswerLoss("compress.losses.soft_label:soft_label", "the teacher's answers, softened"),
    "hidden_state": LayerLoss(
        "compress.losses.hidden_state:hidden_state", "what a layer hands on, squared difference", needs=("hidden",)
    ),
    "attention": LayerLoss(
        "compress.losses.attention:attention", "where each word looks, from queries and keys", needs=("query", "key")
    ),
}
