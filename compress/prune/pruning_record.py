"""The record of what a cut kept of each layer, for compress.json: indices of units and their importance."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from compress.model_history import PrunedLayer, PruningInfo

DIGITS = 4
"""Significant digits of the importance in compress.json."""
Units = tuple[Sequence[int], Sequence[float], Sequence[float] | None]
"""The indices that were kept, ascending, their importance, and that of the others."""


def pruned_layer(kept_heads: Sequence[int], heads: Tensor, kept_ffn: Sequence[int], ffn: Tensor) -> PrunedLayer:
    """Return the record of one layer, given the importance of all its units."""
    return _layer(_units(kept_heads, heads), _units(kept_ffn, ffn))


def since_first_cut(earlier: PruningInfo, later: PruningInfo) -> PruningInfo:
    """Return the record of a later cut, its indices those in the model before the earlier one.

    What was removed has the importance that it had in the cut that removed it; what was kept, in the later one. So that
    they compare, those of the later cut are scaled: the units of a layer add up to what they did in the earlier one.
    """
    remaining = iter(later.layers)
    layers = [before if before.is_dropped else _chained_layer(before, next(remaining)) for before in earlier.layers]
    dropped = tuple(number for number, layer in enumerate(earlier.layers) if layer.is_dropped)
    return later.model_copy(update={"layers": tuple(layers), "dropped_before": dropped or None})


def _chained_layer(before: PrunedLayer, after: PrunedLayer) -> PrunedLayer:
    return _layer(_chained(_heads(before), _heads(after)), _chained(_ffn(before), _ffn(after)))


def _chained(before: Units, after: Units) -> Units:
    kept = [before[0][unit] for unit in after[0]]
    if before[2] is None or after[2] is None:
        return kept, after[1], None
    removed = dict(zip(_others(before[0], len(before[0]) + len(before[2])), before[2], strict=True))
    scale = sum(before[1]) / (sum(after[1]) + sum(after[2]) or 1.0)
    kept_importance, removed_importance = ([_rounded(scale * each) for each in part] for part in (after[1], after[2]))
    now_removed = [before[0][unit] for unit in _others(after[0], len(before[0]))]
    removed |= dict(zip(now_removed, removed_importance, strict=True))
    return kept, kept_importance, [removed[unit] for unit in sorted(removed)]


def _units(kept: Sequence[int], importance: Tensor) -> Units:
    rounded = list(map(_rounded, importance.tolist()))
    return kept, [rounded[unit] for unit in kept], [rounded[unit] for unit in _others(kept, len(rounded))]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _others(kept: Sequence[int], total: int) -> list[int]:
    return sorted(set(range(total)) - set(kept))


def _layer(heads: Units, ffn: Units) -> PrunedLayer:
    return PrunedLayer.model_validate(
        {
            "heads": heads[0],
            "ffn": ffn[0],
            "heads_importance": heads[1],
            "ffn_importance": ffn[1],
            "removed_heads_importance": heads[2],
            "removed_ffn_importance": ffn[2],
        }
    )


def _heads(layer: PrunedLayer) -> Units:
    return layer.heads, layer.heads_importance, layer.removed_heads_importance


def _ffn(layer: PrunedLayer) -> Units:
    return layer.ffn, layer.ffn_importance, layer.removed_ffn_importance
