"""The threshold above which nothing is answered, chosen so that a score is best. Pure numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BEYOND = 1.0
"""How far a threshold lies outside all differences where every row, or none, should be answered."""


def best_threshold(surplus: NDArray[np.float64], kept: NDArray[np.float64], dropped: NDArray[np.float64]) -> float:
    """The threshold with the highest total score, where a row is answered if its ``surplus`` does not exceed it.

    ``kept`` and ``dropped`` are each row's score with its answer and without. Every way to divide the rows is looked
    at; the threshold lies in the middle between two rows, so that it stays right when a runtime rounds otherwise. Of
    equally good ones the lowest is taken.
    """
    order = np.argsort(surplus, kind="stable")
    ordered = surplus[order]
    totals = dropped.sum() + np.concatenate([[0.0], np.cumsum((kept - dropped)[order])])
    # Rows of the same surplus are answered together or not at all.
    can_divide = np.concatenate([[True], ordered[1:] > ordered[:-1], [True]])
    answered = int(np.argmax(np.where(can_divide, totals, -np.inf)))
    low = ordered[answered - 1] if answered else ordered[0] - 2 * BEYOND
    high = ordered[answered] if answered < len(ordered) else ordered[-1] + 2 * BEYOND
    return float((low + high) / 2.0)
