"""The threshold above which no answer is given, chosen for the best score. Pure numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

OUTSIDE_MARGIN = 1.0
"""How far a threshold lies outside all margins where every row, or none, should be answered."""


def best_threshold(margins: NDArray[np.float64], answered: NDArray[np.float64], dropped: NDArray[np.float64]) -> float:
    """Return the threshold with the highest total score, where rows are answered up to that margin of no answer.

    Every way to divide the rows is tried; the threshold lies in the middle between two rows, so that it stays right
    when a runtime rounds differently. Of equally good ones the lowest is taken.

    Args:
        margins: by how much no answer scores higher than each row's best span.
        answered: each row's score with its answer.
        dropped: each row's score without.
    """
    order = np.argsort(margins, kind="stable")
    ordered = margins[order]
    totals = dropped.sum() + np.concatenate([[0.0], np.cumsum((answered - dropped)[order])])
    # Rows with the same margin are answered together or not at all.
    can_divide = np.concatenate([[True], ordered[1:] > ordered[:-1], [True]])
    count = int(np.argmax(np.where(can_divide, totals, -np.inf)))
    low = ordered[count - 1] if count else ordered[0] - 2 * OUTSIDE_MARGIN
    high = ordered[count] if count < len(ordered) else ordered[-1] + 2 * OUTSIDE_MARGIN
    return float((low + high) / 2.0)
