"""Metrics of weighted rows, many draws at once. Pure numpy.

Weights are always (draws, rows): a row of weight two counts twice. That equals repeating the row, and needs no
sorting, copying or counting again for each draw.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from compress.tasks.base import Array

Weights = NDArray[np.float64]
"""How often each row counts (draws, rows)."""
Scores = NDArray[np.float64]
"""A metric of each draw (draws,)."""


def safe_divide(part: Array, total: Array) -> NDArray[np.float64]:
    """Return ``part / total``, and 0 where ``total`` is not positive."""
    zeros = np.zeros(np.broadcast_shapes(np.shape(part), np.shape(total)), np.float64)
    return np.divide(part, total, out=zeros, where=np.asarray(total) > 0)


def weighted_means(values: Mapping[str, Array], weights: Weights) -> dict[str, Scores]:
    """Return the weighted mean of each metric's per-row values (rows,)."""
    rows = weights.sum(axis=1)
    return {name: safe_divide(weights @ each, rows) for name, each in values.items()}


def weighted_counts(values: NDArray[np.int64], classes: int, weights: Weights) -> NDArray[np.float64]:
    """Return how often each of ``classes`` occurs among ``values`` (rows,) in each draw: (draws, classes)."""
    return np.stack([np.bincount(values, weights=line, minlength=classes) for line in weights])


def pearson(left: NDArray[np.float64], right: NDArray[np.float64], weights: Weights) -> Scores:
    """Return the linear correlation of two columns (rows,) in each draw; 0 where one side is constant."""
    return np.array([_pearson(left, right, line) for line in weights])


def spearman(left: NDArray[np.float64], right: NDArray[np.float64], weights: Weights) -> Scores:
    """Return the rank correlation in each draw; equal values share the mean of their ranks."""
    first, second = (np.unique(side, return_inverse=True)[1] for side in (left, right))
    return np.array([_pearson(_ranks(first, line), _ranks(second, line), line) for line in weights])


def _ranks(value_index: NDArray[np.intp], line: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each row in one draw; ``value_index`` is its value's index among the sorted distinct ones."""
    counts = np.bincount(value_index, weights=line)
    return (np.cumsum(counts) - (counts - 1.0) / 2.0)[value_index]


def _pearson(left: NDArray[np.float64], right: NDArray[np.float64], line: NDArray[np.float64]) -> float:
    rows, first = line.sum(), int(np.argmax(line > 0))
    if not rows:
        return 0.0
    # Relative to a drawn value, a side that is constant in this draw is exactly zero, whatever rounding does.
    left, right = left - left[first], right - right[first]
    left, right = left - (line @ left) / rows, right - (line @ right) / rows
    weighted = line * left
    spread = np.sqrt(weighted @ left) * np.sqrt((line * right) @ right)
    return float((weighted @ right) / spread) if spread > 0 else 0.0
