"""Importance criteria: what was collected of a layer's heads or neurons becomes one score for each of them.

A criterion is a function from `LayerUnits` (signed mask gradients of every row, output weight) to importance (units,),
float32; larger is more important.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Criterion:
    """How the units to keep are chosen. Functions as `module:function`, imported when called: plans need no torch."""

    importance: str
    """From the units of a layer to their importance."""
    exchange: str | None = None
    """From the units of a layer and the indices kept to as many others that are better together."""
    joint: bool = False
    """Importance of heads and of neurons is comparable, so a goal (`to`) weighs one against the other; otherwise equal
    shares of both are removed."""
    rescale: bool = False
    """What `prune.rescale` is where the recipe does not say."""


CRITERIA: Mapping[str, Criterion] = {
    "taylor": Criterion("compress.prune.criteria.taylor:taylor"),
    "fisher": Criterion("compress.prune.criteria.fisher:fisher"),
    "kwon": Criterion(
        "compress.prune.criteria.fisher:fisher", "compress.prune.criteria.kwon:exchange", joint=True, rescale=True
    ),
    "magnitude": Criterion("compress.prune.criteria.magnitude:magnitude"),
    "random": Criterion("compress.prune.criteria.random:random"),
}
"""By the name in a recipe's `prune.criterion`."""
