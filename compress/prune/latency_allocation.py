"""How much each part of a model keeps so that it runs within a time at the least loss: pure functions of arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
