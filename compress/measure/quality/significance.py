"""How sure a score is: the bootstrap of a score, of a paired difference, and McNemar's test. Pure numpy.

An interval is the 2.5th to the 97.5th percentile of the statistic over resamples of the rows (Efron, 1979). A
difference is bootstrapped over the same rows for both models (Koehn, 2004), which is why two models can differ for
certain although their own intervals overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import comb, erfc, sqrt

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
TOGETHER = 1 << 20
"""Row numbers drawn at once by ``drawn_times``: enough that numpy works, little enough that memory stays flat."""
EXACT_UP_TO = 1000
"""Rows of disagreement up to which McNemar's test sums the binomial instead of taking the chi-square."""

Statistic = Callable[[NDArray[np.intp]], float]
"""The value of a score on the rows with these indices."""


@dataclass(frozen=True)
class Interval:
    """A value, the ends of its interval and the resampled values behind it."""

    value: float
    low: float
    high: float
    resampled: NDArray[np.float64]


def resamples(rows: int, count: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """``count`` draws of ``rows`` row numbers with replacement, the same ones for the same seed."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield random.integers(0, rows, size=rows, dtype=np.intp)


def drawn_times(rows: int, count: int, seed: int) -> Iterator[NDArray[np.uint8]]:
    """The same draws as ``resamples``, some at a time, as how often each row was drawn: (draws, rows).

    A row is drawn once on average; that it is drawn 256 times does not happen in the life of the universe.
    """
    waiting: list[NDArray[np.uint8]] = []
    for drawn in resamples(rows, count, seed):
        waiting.append(np.bincount(drawn, minlength=rows).astype(np.uint8))
        if len(waiting) * rows >= TOGETHER:
            yield np.stack(waiting)
            waiting = []
    if waiting:
        yield np.stack(waiting)


def percentile_interval(value: float, resampled: NDArray[np.float64], level: float = LEVEL) -> Interval:
    """The interval that holds ``level`` of the resampled values."""
    outside = (1.0 - level) / 2.0
    low, high = np.quantile(resampled, [outside, 1.0 - outside])
    return Interval(value, float(low), float(high), resampled)


def basic_interval(value: float, resampled: NDArray[np.float64], level: float = LEVEL) -> Interval:
    """The interval for a value that resampling pushes up, such as a mean of distances: the basic bootstrap.

    The resampled values exceed the value by about as much as the value exceeds the truth, so their distances from it
    are turned around (Davison and Hinkley, 1997). Cut off at zero, and it always holds the value itself.
    """
    above = percentile_interval(value, resampled, level)
    low, high = 2.0 * value - above.high, 2.0 * value - above.low
    return Interval(value, max(0.0, min(low, value)), max(high, value), resampled)


def bootstrap(statistic: Statistic, rows: int, count: int = 1000, seed: int = 0) -> Interval:
    """The statistic on all rows with its interval; more resamples steady the ends, they do not narrow them."""
    everything = statistic(np.arange(rows, dtype=np.intp))
    values = np.fromiter((statistic(drawn) for drawn in resamples(rows, count, seed)), np.float64, count)
    return percentile_interval(everything, values)


def paired_p_value(differences: NDArray[np.float64]) -> float:
    """Twice the share of resampled differences on the rarer side of zero, never below 2 / (resamples + 1).

    Ties with zero count for both sides, so that two equal models get 1.
    """
    count = len(differences)
    below, above = int((differences <= 0).sum()), int((differences >= 0).sum())
    return float(min(1.0, 2.0 * (min(below, above) + 1) / (count + 1)))


def mcnemar(first_right: NDArray[np.bool_], second_right: NDArray[np.bool_]) -> float:
    """The chance of so uneven a split of the rows that only one of two classifiers gets right (McNemar, 1947).

    Exact (two-sided binomial) up to a thousand such rows, chi-square with continuity correction above.
    """
    only_first = int((first_right & ~second_right).sum())
    only_second = int((~first_right & second_right).sum())
    together = only_first + only_second
    if together == 0:
        return 1.0
    if together <= EXACT_UP_TO:
        tail = sum(comb(together, count) for count in range(min(only_first, only_second) + 1))
        return min(1.0, 2 * tail / (1 << together))
    chi_square = max(0, abs(only_first - only_second) - 1) ** 2 / together
    return erfc(sqrt(chi_square / 2.0))
