"""What pruning kept of each layer, in as few numbers as a report shows: heads, and blocks of FFN neurons."""

from __future__ import annotations

from collections.abc import Sequence

from compress.measure.result_base import ResultModel
from compress.model_history import PruningInfo
from compress.prune.latency_table import SpeedupResult

FFN_BLOCKS = 16
"""Blocks of a layer's neurons: equal numbers of them, in order of importance."""


class Cell(ResultModel):
    """A head, or a block of neurons."""

    importance: float
    """Of a neuron, the mean."""
    kept: float
    """Share of its units."""


class PrunedUnits(ResultModel):
    """The heads or the neurons of one layer."""

    kept: int
    total: int | None = None
    """None in models of versions that did not store the importance of what was removed, like the rest."""
    importance: float | None = None
    """Share of the layer's importance that was kept."""
    cells: tuple[Cell, ...] = ()
    """Heads in order; neurons in blocks, the most important first."""


class PrunedStructure(ResultModel):
    """What a cut kept."""

    criterion: str
    heads: tuple[PrunedUnits, ...]
    """By layer."""
    ffn: tuple[PrunedUnits, ...]
    speedup: SpeedupResult | None = None
    """How a goal of speed-up was reached; None with another goal, and in older reports."""
    target: str | None = None
    """The title of the target at which it was measured; None for a latency table from elsewhere."""


def pruned_structure(pruning: PruningInfo) -> PrunedStructure:
    """Return what the report shows of a cut."""
    layers = pruning.layers
    return PrunedStructure(
        criterion=pruning.criterion,
        heads=tuple(_units(each.heads, each.heads_importance, each.removed_heads_importance, None) for each in layers),
        ffn=tuple(_units(each.ffn, each.ffn_importance, each.removed_ffn_importance, FFN_BLOCKS) for each in layers),
    )


def _units(
    kept: Sequence[int], importance: Sequence[float], removed: Sequence[float] | None, blocks: int | None
) -> PrunedUnits:
    """Return a layer's units as ``blocks`` cells in order of importance; None: each unit, in its own order."""
    if removed is None:
        return PrunedUnits(kept=len(kept))
    values, others = dict(zip(kept, importance, strict=True)), iter(removed)
    total = len(importance) + len(removed)
    units = [(values[unit], 1) if unit in values else (next(others), 0) for unit in range(total)]
    whole = sum(importance) + sum(removed)
    count = total if blocks is None else min(blocks, total)
    ordered = units if blocks is None else sorted(units, reverse=True)
    parts = [ordered[number * total // count : (number + 1) * total // count] for number in range(count)]
    return PrunedUnits(
        kept=len(kept),
        total=total,
        importance=sum(importance) / whole if whole > 0 else None,
        cells=tuple(
            Cell(
                importance=sum(value for value, _ in part) / len(part),
                kept=sum(is_kept for _, is_kept in part) / len(part),
            )
            for part in parts
        ),
    )
