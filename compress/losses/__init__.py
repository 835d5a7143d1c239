"""Losses: pure functions of tensors, one file each, in two explicit tables: the tasks' own, and those of distillation.

Each is a mean over rows, so that a batch may be split anywhere (over processes, over accumulation) without changing
the sum; those that look at all texts of a batch together are the exception. A new loss is a file with a function, and
its line here. The tables are light, because recipes and plans read them: a function is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from compress.model_info import TaskInfo

__all__ = ["LOSSES", "TASK_LOSSES", "BatchLoss", "LayerLoss", "OutputLoss", "Part"]

Part = Literal["hidden", "query", "key", "value"]
"""What of a layer can be observed."""


@dataclass(frozen=True)
class BatchLoss:
    """Compares what a model answers with what the batch brings along: labels, scores."""

    path: str
    """`module:function`."""
    about: str
    needs: tuple[str, ...] = ("labels",)

    @cached_property
    def function(self) -> Callable[[Mapping[str, Tensor], Mapping[str, Tensor], TaskInfo], Tensor]:
        """(model's outputs, batch, task) -> mean over rows."""
        found: Callable[..., Any] = resolve_name(self.path)
        return found


@dataclass(frozen=True)
class OutputLoss:
    """Compares what the models answer."""

    path: str
    about: str
    needs: tuple[str, ...] = ("answers",)

    @cached_property
    def function(
        self,
    ) -> Callable[[Mapping[str, Tensor], Mapping[str, Tensor], Mapping[str, Tensor], TaskInfo, str, Any], Tensor]:
        """(student's outputs, teacher's outputs, batch, task, the task's problem, settings) -> mean over rows."""
        found: Callable[..., Any] = resolve_name(self.path)
        return found


@dataclass(frozen=True)
class LayerLoss:
    """Compares a student layer with the teacher layer it is mapped to."""

    path: str
    about: str
    needs: tuple[Part, ...]
    at: Literal["mapped", "last", "embeddings"] = "mapped"
    """Every pair of the layer map, the student's last layer, or what the embeddings hand to the first one."""
    projected: bool = False
    """Whether the student's hidden states come in the teacher's width."""
    chosen: bool = False
    """Whether its settings say which of those parts it looks at."""

    def parts(self, settings: Any) -> tuple[Part, ...]:
        """What it looks at with these settings, `sides` of them where it is for them to choose."""
        return tuple(settings.sides) if self.chosen else self.needs

    @cached_property
    def function(self) -> Callable[[Mapping[str, Tensor], Mapping[str, Tensor], Mapping[str, Tensor], Any], Tensor]:
        """(student's parts, teacher's parts, batch, settings) -> mean over rows."""
        found: Callable[..., Any] = resolve_name(self.path)
        return found


TASK_LOSSES: Mapping[str, BatchLoss] = {
    "single_label_classification": BatchLoss("compress.losses.task.cross_entropy:cross_entropy", "the right class"),
    "multi_label_classification": BatchLoss("compress.losses.task.bce:bce", "each class, yes or no"),
    "regression": BatchLoss("compress.losses.task.mse:mse", "the number, squared error"),
    "token_classification": BatchLoss("compress.losses.task.token_ce:token_ce", "the tag of each word"),
    "question_answering": BatchLoss(
        "compress.losses.task.span_ce:span_ce", "where the answer starts and ends", needs=("start", "end", "context")
    ),
    "choice": BatchLoss("compress.losses.task.multiple_choice_ce:multiple_choice_ce", "the right choice"),
    "ranking": BatchLoss("compress.losses.task.listwise_ce:listwise_ce", "the right candidates above the others"),
    "similarity": BatchLoss("compress.losses.task.cosine_mse:cosine_mse", "how alike two texts are, squared error"),
    "retrieval": BatchLoss(
        "compress.losses.task.in_batch_negatives:in_batch_negatives",
        "a question's document among all of the batch",
        needs=("part",),
    ),
}
"""By a kind's `problem`: what its models are trained on where there are true answers."""

LOSSES: Mapping[str, OutputLoss | LayerLoss | BatchLoss] = {
    "soft_label": OutputLoss("compress.losses.distillation.soft_label:soft_label", "the teacher's answers, softened"),
    "hidden_state": LayerLoss(
        "compress.losses.distillation.hidden_state:hidden_state",
        "what each layer hands on",
        needs=("hidden",),
        projected=True,
    ),
    "embedding": LayerLoss(
        "compress.losses.distillation.embedding:embedding",
        "what the embeddings hand to the first layer",
        needs=("hidden",),
        at="embeddings",
        projected=True,
    ),
    "attention": LayerLoss(
        "compress.losses.distillation.attention:attention",
        "where each word looks, from queries and keys",
        needs=("query", "key"),
    ),
    "relation": LayerLoss(
        "compress.losses.distillation.relation:relation",
        "how alike queries, keys and values of a text are among themselves",
        needs=("query", "key", "value"),
        at="last",
        chosen=True,
    ),
    "similarity": LayerLoss(
        "compress.losses.distillation.similarity:similarity",
        "how the texts of a batch lie to each other",
        needs=("hidden",),
        at="last",
    ),
    "contrast": LayerLoss(
        "compress.losses.distillation.contrast:contrast",
        "a text's own teacher among those of the batch",
        needs=("hidden",),
        at="last",
        projected=True,
    ),
    "margin": BatchLoss(
        "compress.losses.distillation.margin:margin",
        "how much better a document is than another, as a cross-encoder says (retrieval)",
        needs=("scores",),
    ),
}
"""By their keys in a recipe: what a student can be distilled with."""
