"""Importance criteria: the collected mask gradients of a layer's heads or neurons become one score for each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    Criterion = Callable[[Tensor], Tensor]
    """From signed mask gradients (samples, units) to importance (units,), both float32; larger is more important."""

CRITERIA: Mapping[str, str] = {"taylor": "compress.prune.criteria.taylor:taylor"}
"""By the name in a recipe's `prune.criterion`: `module:function`, imported when it is called: plans need no torch."""


def criterion_named(name: str) -> Criterion:
    """Return the function of a criterion."""
    function: Criterion = resolve_name(CRITERIA[name])
    return function
