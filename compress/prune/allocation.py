"""How much each layer keeps, and which heads and neurons: pure functions of importance tensors and of times."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
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


BINS = 4096
"""Steps into which the time is divided. Costs are rounded up, so that a choice is never above the budget."""

SMALLEST_STEP = 1e-12
"""Lower limit of a step, so that there is no division by zero where the cheapest options use up the budget."""


def allocate(costs: Sequence[ArrayLike], losses: Sequence[ArrayLike], budget: float) -> list[int] | None:
    """Return the option of each part with the least total loss whose total cost is within the budget.

    A knapsack with one choice for each part, by dynamic programming: exact for costs in whole steps of the budget.

    Args:
        costs: for each part, the cost of each of its options.
        losses: the loss of each, in the same order.
        budget: what the costs may add up to.

    Returns:
        An index for each part; None where even the cheapest options cost more.
    """
    tables = [np.asarray(each, dtype=float) for each in costs]
    rest = budget - sum(float(table.min()) for table in tables)
    if rest < 0:
        return None
    step = max(rest / BINS, SMALLEST_STEP)
    best = np.zeros(BINS + 1)  # least loss of the parts so far, by the steps that they may take
    chosen: list[NDArray[np.int64]] = []
    steps = [np.ceil((table - table.min()) / step - 1e-9).astype(int) for table in tables]
    for taken, loss in zip(steps, losses, strict=True):
        totals = np.full((len(taken), BINS + 1), np.inf)
        for option, (used, lost) in enumerate(zip(taken.tolist(), np.asarray(loss, dtype=float), strict=True)):
            if used <= BINS:
                totals[option, used:] = best[: BINS + 1 - used] + lost
        chosen.append(totals.argmin(axis=0))
        best = totals.min(axis=0)
    options, left = [], BINS
    for picked, taken in zip(reversed(chosen), reversed(steps), strict=True):
        options.append(int(picked[left]))
        left -= int(taken[options[-1]])
    return options[::-1]


def allocate_to_some(costs: Sequence[ArrayLike], losses: Sequence[ArrayLike], budget: float) -> list[int] | None:
    """Return what `allocate` does, with at least one part that does not take its first option (dropping the layer)."""
    chosen = allocate(costs, losses, budget)
    if chosen is None or any(chosen):
        return chosen
    best, least = None, np.inf
    for kept in range(len(costs)):
        first = [int(part == kept) for part in range(len(costs))]
        cost, loss = ([np.asarray(part)[start:] for part, start in zip(t, first, strict=True)] for t in (costs, losses))
        if (options := allocate(cost, loss, budget)) is not None:
            lost = sum(float(part[option]) for part, option in zip(loss, options, strict=True))
            if lost < least:
                best, least = [option + start for option, start in zip(options, first, strict=True)], lost
    return best


def pareto_front(costs: NDArray[np.float64], losses: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the indices of the options that cost less than all that lose no more, in order of cost."""
    order = np.lexsort((losses, costs))
    ordered = losses[order]
    front: NDArray[np.int64] = order[np.append(True, ordered[1:] < np.minimum.accumulate(ordered)[:-1])]
    return front
