"""Statistical uncertainty: the bootstrap, p-values of paired differences, McNemar's test, clustered values. Pure numpy.

An interval is the 2.5th to the 97.5th percentile of the statistic over resamples of the rows (Efron, 1979). A
difference is bootstrapped over the same rows for both models (Koehn, 2004), so two models can differ significantly
although their own intervals overlap.

Timings are clustered: rounds of turns, run by a few processes of the same model. Two processes of one model differ for
as long as they live: the addresses of their arrays decide which of them collide in the caches. So the calls of one
process are not independent observations of the model, and more of them would only make a wrong result look more
certain. Processes are independent, so intervals rest on one value a process, with Student's t for their small number
(Kalibera and Jones, Rigorous benchmarking in reasonable time, 2013).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import comb, erfc, hypot, sqrt

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


def paired_p_value(differences: NDArray[np.float64], rows: int) -> float:
    """Return twice the share of resampled differences on the rarer side of zero, never below 2 / (resamples + 1).

    Zeros count for both sides, so that two equal models get 1. Of few rows it is never below what an exact test of
    their signs could give: resamples of rows that all point one way do too, however few they are.
    """
    count = len(differences)
    below, above = int((differences <= 0).sum()), int((differences >= 0).sum())
    return float(min(1.0, max(2.0 * (min(below, above) + 1) / (count + 1), 2.0 ** (1 - rows))))


@cache
def highest_share(count: int, rows: int, chance: float) -> float:
    """Return the share at which ``count`` of ``rows`` or fewer have this chance (Clopper and Pearson, 1934)."""
    if count == rows:
        return 1.0
    number = np.arange(1, count + 1)
    ways = np.concatenate([[0.0], np.cumsum(np.log((rows - number + 1) / number))])
    seen = np.arange(count + 1)
    low, high = count / rows, 1.0
    for _ in range(50):
        share = (low + high) / 2
        probability = np.exp(ways + seen * np.log(share) + (rows - seen) * np.log1p(-share)).sum()
        low, high = (share, high) if probability > chance else (low, share)
    return high


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


Values = NDArray[np.float64]

MIN_CLUSTERS = 3
"""Processes from which their own differences are known well enough; Student's t for two would span everything."""
PROCESS_SPREAD = 0.01
"""Standard deviation between processes of one model that is assumed where there are too few of them to estimate it."""
SESSION_SPREAD = 0.005
"""Standard deviation of a ratio between sessions that the processes of one session do not show: all of them get their
memory from what the same machine has free at that time. Estimated from twenty sessions of identical models on a quiet
machine of two cores: their ratios are likeliest with 0.4 % and do not rule out 0.2 % or 0.7 %, so it is rounded up."""
TRIMMED = 0.1
"""Share of the clusters' means left out at either end: a disturbance of one entire process must not decide."""
NORMAL = 1.959964
T_QUANTILES = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484,
    2.0452, 2.0423,
)  # fmt: skip
"""97.5 % quantiles of Student's t for 1 to 30 degrees of freedom."""


def t_quantile(freedom: int) -> float:
    """Return how many standard errors a 95 % interval extends to each side."""
    if freedom < 1:
        raise ValueError(f"one value has no spread; got {freedom} degrees of freedom.")
    if freedom <= len(T_QUANTILES):
        return T_QUANTILES[freedom - 1]
    cubic = (NORMAL**3 + NORMAL) / (4 * freedom)  # the first terms of its expansion around the normal quantile
    return NORMAL + cubic + (5 * NORMAL**5 + 16 * NORMAL**3 + 3 * NORMAL) / (96 * freedom**2)


def trimmed_mean(values: Values, trimmed: float = TRIMMED) -> tuple[float, float]:
    """Return the mean without the ends, and half the width of its 95 % interval (Tukey and McLaughlin, 1963)."""
    count = len(values)
    cut = int(trimmed * count)
    remaining = count - 2 * cut
    ordered = np.sort(values)
    winsorized = np.clip(values, ordered[cut], ordered[count - cut - 1])
    error = float(np.std(winsorized, ddof=1)) * sqrt(count) / remaining
    return float(ordered[cut : count - cut].mean()), t_quantile(remaining - 1) * error


def clustered_mean(values: Values, clusters: Sequence[int], processes: int = 1) -> tuple[float, float]:
    """Return the mean over clusters of the median in each, and half the width of its 95 % interval.

    The median removes a disturbance of one turn from its process, the trimming one of a process from the result; both
    were chosen by simulation (the tests repeat it).

    Args:
        values: one a round, on a scale on which differences are additive (logarithms).
        clusters: for each round, the number of its process; empty counts as one process for all.
        processes: how many models' processes each value rests on (two for a ratio); used where there are fewer than
            `MIN_CLUSTERS` clusters.
    """
    labels = np.asarray(clusters) if len(clusters) else np.zeros(len(values), int)
    names = np.unique(labels)
    if len(names) >= MIN_CLUSTERS:
        return trimmed_mean(np.array([np.median(values[labels == name]) for name in names]))
    assumed = NORMAL * PROCESS_SPREAD * sqrt(processes / len(names))
    if len(values) < 2:
        return float(values.mean()), assumed
    return float(np.median(values)), hypot(trimmed_mean(values)[1], assumed)


def coarser_grouping(first: Sequence[int], second: Sequence[int]) -> Sequence[int]:
    """Return the one of two clusterings of the same rounds that has fewer clusters: it contains those of the other."""
    return first if len(set(first)) <= len(set(second)) else second


def harrell_davis_median(times: Values, width: int = 1) -> float:
    """Return the median of one round's calls, where ``width`` different calls were run in full passes.

    Each different call counts by its own median over the passes, and the median over the calls is the smooth one of
    Harrell and Davis (1982): it weights the calls around the middle instead of using one, so that a disturbed call, or
    two calls that differ much in length, move it less.
    """
    medians = np.sort(np.median(times.reshape(-1, width), axis=0))
    return float(_weights(width) @ medians)


@cache
def _weights(count: int) -> Values:
    """Return the weight of each of ``count`` ordered values: the mass of Beta((n+1)/2, (n+1)/2) in its share."""
    steps = 200
    points = (np.arange(count * steps) + 0.5) / (count * steps)
    density = (points * (1.0 - points)) ** ((count - 1) / 2)
    mass = density.reshape(count, steps).sum(axis=1)
    return np.asarray(mass / mass.sum())
