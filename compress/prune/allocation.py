"""How many heads and neurons each layer keeps, and which: pure functions of importance tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def select_units(importances: Sequence[Tensor], removed: float, block: int = 1, even: bool = False) -> list[list[int]]:
    """Return the indices of the units that remain, by layer and in order; every layer keeps at least one block.

    Units are taken a block at a time: within a layer the most important ones form the first block, the next ones the
    second. Blocks are ranked over all layers at once by their mean importance, so that each layer loses what matters
    least.

    Args:
        importances: of each layer's units; layers may have different numbers of them.
        removed: share of all units to remove.
        block: how many units are kept or removed together (a multiple of it remains, or the full layer does).
        even: remove the same share from every layer instead.
    """
    if even:
        return [kept for layer in importances for kept in select_units([layer], removed, block)]
    orders = [by_importance(layer) for layer in importances]
    blocks = [
        (first > 0, -float(importance[units].mean()), layer, units)
        for layer, (importance, order) in enumerate(zip(importances, orders, strict=True))
        for first, units in enumerate(torch.split(order, block))
    ]
    blocks.sort(key=lambda entry: entry[:3])  # each layer's first block, then the others by importance
    target = (1.0 - removed) * sum(map(len, importances))
    kept: list[list[int]] = [[] for _ in importances]
    count = 0
    for later, _, layer, units in blocks:
        if later and abs(count + len(units) - target) > abs(count - target):
            break
        kept[layer] += units.tolist()
        count += len(units)
    return [sorted(layer) for layer in kept]


def by_importance(importance: Tensor) -> Tensor:
    """Return the indices of units, the most important one first; of equal ones those with lower indices first."""
    return torch.sort(importance, descending=True, stable=True).indices


def least_loss(
    pairs: Sequence[tuple[float, float]], heads: Sequence[Tensor], ffn: Sequence[Tensor], block: int, even: bool
) -> tuple[float, float]:
    """Return the pair of shares of heads and neurons whose removal loses the least importance, all layers together."""

    def lost(pair: tuple[float, float]) -> float:
        kept = select_units(heads, pair[0], even=even) + select_units(ffn, pair[1], block, even)
        return -sum(float(layer[units].sum()) for layer, units in zip([*heads, *ffn], kept, strict=True))

    return min(pairs, key=lost)
