"""Scores of many resamples at once, from how often each row was drawn; what several kinds share. Pure numpy.

``times`` is always (draws, rows): a row drawn twice counts twice. That is the same as repeating the row, and needs no
sorting, copying or counting again for each draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Draws = NDArray[np.float64]


def one_by_one(
    score: Callable[[NDArray[Any], NDArray[Any]], dict[str, float]],
    answers: NDArray[Any],
    gold: NDArray[Any],
    times: Draws,
) -> dict[str, NDArray[np.float64]]:
    """``score`` on the repeated rows of each draw: right for every kind, and as slow as its score."""
    places = np.arange(len(gold))
    found = []
    for line in times:
        rows = np.repeat(places, line.astype(np.intp))
        found.append(score(answers[rows], gold[rows]))
    return {name: np.array([scores[name] for scores in found]) for name in found[0]}


def totals(values: NDArray[np.int64], classes: int, times: Draws) -> NDArray[np.float64]:
    """How often each of ``classes`` stands among ``values`` (rows,) in each draw: (draws, classes)."""
    return np.stack([np.bincount(values, weights=line, minlength=classes) for line in times])


def spearman_of_draws(left: NDArray[np.float64], right: NDArray[np.float64], times: Draws) -> NDArray[np.float64]:
    """The correlation of ranks in each draw, equal values sharing the mean of their ranks."""
    first, second = (np.unique(side, return_inverse=True)[1] for side in (left, right))
    return np.array([_pearson(_ranks(first, line), _ranks(second, line), line) for line in times])


def pearson_of_draws(left: NDArray[np.float64], right: NDArray[np.float64], times: Draws) -> NDArray[np.float64]:
    """The correlation of two columns (rows,) in each draw; 0 where one side is constant."""
    return np.array([_pearson(left, right, line) for line in times])


def _ranks(place: NDArray[np.intp], line: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rank of each row's value in one draw; ``place`` is that of the value among the distinct ones."""
    counts = np.bincount(place, weights=line)
    shared: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1.0) / 2.0)[place]
    return shared


def _pearson(left: NDArray[np.float64], right: NDArray[np.float64], line: NDArray[np.float64]) -> float:
    rows, first = line.sum(), int(np.argmax(line > 0))
    # Measured from a drawn value, a side that is constant in this draw is exactly zero, whatever rounding does.
    left, right = left - left[first], right - right[first]
    left, right = left - (line @ left) / rows, right - (line @ right) / rows
    weighted = line * left
    spread = np.sqrt(weighted @ left) * np.sqrt((line * right) @ right)
    return float((weighted @ right) / spread) if spread > 0 else 0.0
