"""Confidence intervals for clustered values: rounds of turns, run by a few processes of the same model.

Two processes of one model differ for as long as they live: the addresses of their arrays decide which of them collide
in the caches. So the calls of one process are not independent observations of the model, and more of them would only
make a wrong result look more certain. Processes are independent, so intervals rest on one value a process, with
Student's t for their small number (Kalibera and Jones, Rigorous benchmarking in reasonable time, 2013). Pure numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import hypot, sqrt

import numpy as np
from numpy.typing import NDArray

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
