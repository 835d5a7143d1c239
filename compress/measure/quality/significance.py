"""Statistical uncertainty of a score: the bootstrap, p-values of paired differences, and McNemar's test. Pure numpy.

An interval is the 2.5th to the 97.5th percentile of the statistic over resamples of the rows (Efron, 1979). A
difference is bootstrapped over the same rows for both models (Koehn, 2004), so two models can differ significantly
although their own intervals overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import comb, erfc, sqrt

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
BLOCK = 1 << 20
"""Row numbers of a block of ``draw_counts``: large enough for numpy to be fast, small enough for flat memory."""
EXACT_UP_TO = 1000
"""Rows of disagreement up to which McNemar's test sums the binomial instead of taking the chi-square."""


@dataclass(frozen=True)
class Interval:
    """A value, the ends of its interval and the resampled values behind it."""

    value: float
    low: float
    high: float
    resampled: NDArray[np.float64]


def resamples(rows: int, count: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """Yield ``count`` resamples of ``rows`` row numbers with replacement, the same ones for the same seed."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield random.integers(0, rows, size=rows, dtype=np.intp)


def draw_counts(rows: int, count: int, seed: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the same draws as ``resamples`` in blocks, as how often each row was drawn: (resamples, rows).

    A row is drawn once on average, so that 8 bits are enough: 256 draws of one row are practically impossible.
    """
    draws, together = resamples(rows, count, seed), -(-BLOCK // rows)
    while block := [np.bincount(drawn, minlength=rows).astype(np.uint8) for drawn in islice(draws, together)]:
        yield np.stack(block)


def percentile_interval(value: float, resampled: NDArray[np.float64]) -> Interval:
    """Return the interval that contains `LEVEL` of the resampled values."""
    outside = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(resampled, [outside, 1.0 - outside])
    return Interval(value, float(low), float(high), resampled)


def basic_interval(value: float, resampled: NDArray[np.float64]) -> Interval:
    """Return the basic bootstrap interval, for a value that resampling biases upwards, such as a mean of distances.

    The resampled values exceed the value by about as much as the value exceeds the truth, so their distances from it
    are reflected (Davison and Hinkley, 1997). Clipped at zero, and it always contains the value itself.
    """
    above = percentile_interval(value, resampled)
    low, high = 2.0 * value - above.high, 2.0 * value - above.low
    return Interval(value, max(0.0, min(low, value)), max(high, value), resampled)


def paired_p_value(differences: NDArray[np.float64]) -> float:
    """Return twice the share of resampled differences on the rarer side of zero, never below 2 / (resamples + 1).

    Zeros count for both sides, so that two equal models get 1.
    """
    count = len(differences)
    below, above = int((differences <= 0).sum()), int((differences >= 0).sum())
    return float(min(1.0, 2.0 * (min(below, above) + 1) / (count + 1)))


def mcnemar(first_right: NDArray[np.bool_], second_right: NDArray[np.bool_]) -> float:
    """Return the p-value for the rows that only one of two classifiers gets right (McNemar, 1947)."""
    return sign_test(int((first_right & ~second_right).sum()), int((~first_right & second_right).sum()))


def sign_test(only_first: int, only_second: int) -> float:
    """Return the p-value of so uneven a split if both sides were equally probable.

    Exact (two-sided binomial) up to `EXACT_UP_TO` rows, chi-square with continuity correction above.
    """
    together = only_first + only_second
    if together == 0:
        return 1.0
    if together <= EXACT_UP_TO:
        tail = sum(comb(together, count) for count in range(min(only_first, only_second) + 1))
        return min(1.0, 2 * tail / (1 << together))
    chi_square = max(0, abs(only_first - only_second) - 1) ** 2 / together
    return erfc(sqrt(chi_square / 2.0))
