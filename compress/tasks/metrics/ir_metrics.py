"""Metrics of ranked lists, from where in them the right items are. Pure numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from compress.tasks.base import Array
from compress.tasks.metrics.weighted_metrics import safe_divide

Relevant = NDArray[np.bool_]
"""Whether each item of a list (queries, ranks) is right, the best rank first."""
QueryScores = NDArray[np.float64]
"""One number per query."""


def is_relevant(retrieved: Array, true: Array) -> Relevant:
    """Return which of the numbers ``retrieved`` (queries, ranks) are among the ``true`` ones (queries, any)."""
    relevant = np.zeros(retrieved.shape, np.bool_)
    for column in true.T:
        relevant |= retrieved == column[:, None]
    return relevant


def reciprocal_ranks(relevant: Relevant) -> QueryScores:
    """Return 1 / the rank of the first right item, counted from 1; 0 where there is none."""
    first = relevant.argmax(axis=1) + 1
    return np.where(relevant.any(axis=1), 1.0 / first, 0.0)


def recall_at(relevant: Relevant, true: Array, depth: int) -> QueryScores:
    """Return the share of the ``true`` (queries,) number of right items that is among the first ``depth``."""
    return relevant[:, :depth].sum(axis=1) / true


def ndcg(gains: Array, ideal: Array, depth: int) -> QueryScores:
    """Return nDCG of the first ``depth`` ranks: gains divided by log2(rank + 1), relative to the ideal order's.

    Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques" (2002).

    Args:
        gains: of the items in their order (queries, ranks).
        ideal: of the items in the best order (queries, any number of ranks).
        depth: ranks that count.
    """
    weights = 1.0 / np.log2(np.arange(2, depth + 2))
    reached, possible = (each[:, :depth] @ weights[: each.shape[1]] for each in (gains, ideal))
    return safe_divide(reached, possible)


def list_overlap(retrieved: Array, others: Array) -> QueryScores:
    """Return the share of items that two lists (queries, ranks) have in common, as the mean over all depths.

    Fagin, Kumar and Sivakumar, "Comparing top k lists" (2003): 1 for the same order, 0 where they share nothing; top
    ranks weigh most.
    """
    depths = range(1, retrieved.shape[1] + 1)
    shares = [is_relevant(retrieved[:, :depth], others[:, :depth]).mean(axis=1) for depth in depths]
    return np.mean(shares, axis=0)
