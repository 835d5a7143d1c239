"""What a list of found documents is worth, from where in it those stand that answer the query. Pure numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Right = NDArray[np.bool_]
"""Whether each document found (queries, places) answers its query, the best place first."""
Each = NDArray[np.float64]
"""One number a query."""


def relevant(found: NDArray[Any], true: NDArray[Any]) -> Right:
    """Which of the numbers ``found`` (queries, places) are among the ``true`` ones (queries, any number)."""
    right = np.zeros(found.shape, np.bool_)
    for column in true.T:
        right |= found == column[:, None]
    return right


def reciprocal_ranks(right: Right) -> Each:
    """One through the place of the first right document, counted from 1; 0 where none was found."""
    first = right.argmax(axis=1) + 1
    ranks: Each = np.where(right.any(axis=1), 1.0 / first, 0.0)
    return ranks


def shares_found(right: Right, true: NDArray[Any], places: int) -> Each:
    """Which share of the ``true`` (queries,) number of right documents is among the first ``places`` (recall)."""
    shares: Each = right[:, :places].sum(axis=1) / true
    return shares


def overlap(found: NDArray[Any], others: NDArray[Any]) -> Each:
    """The share of numbers that two lists (queries, places) have in common, as the mean over all depths.

    Fagin, Kumar and Sivakumar, "Comparing top k lists" (2003): 1 for the same order, 0 where they share nothing; places
    at the top weigh most.
    """
    depths = range(1, found.shape[1] + 1)
    shares: Each = np.mean([relevant(found[:, :depth], others[:, :depth]).mean(axis=1) for depth in depths], axis=0)
    return shares


def gains(right: Right, true: NDArray[Any], places: int) -> Each:
    """nDCG: right documents count one through log2(place + 1), against as many of them in the first places.

    Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques" (2002), for documents that answer or do
    not.
    """
    weights = 1.0 / np.log2(np.arange(2, places + 2))
    ideal = np.concatenate([[0.0], np.cumsum(weights)])
    seen = right[:, :places]
    share: Each = (seen @ weights[: seen.shape[1]]) / ideal[np.minimum(true, places)]
    return share
