"""Intervals for figures that come in clusters: rounds of turns, taken by a few processes of the same model.

Two processes of one model differ, each for as long as it lives: where its arrays lie decides which of them meet in the
caches. So the calls of one process are not independent looks at the model, and the more of them there are the surer a
wrong answer would seem. What is independent is a process, so intervals rest on one value a process, with Student's t
for as few as there are (Kalibera and Jones, Rigorous benchmarking in reasonable time, 2013). Pure numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import hypot, sqrt

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

FEWEST_CLUSTERS = 3
"""Processes from which their own differences are known well enough; Student's t for two would span everything."""
PROCESS_SPREAD = 0.01
"""Standard deviation between processes of one model that is assumed where there were too few of them to tell."""
SESSION_SPREAD = 0.005
"""Standard deviation of a ratio between sessions that the processes of one session do not show: all of them get their
memory from what the same machine has left at that time. Found in twenty sessions of identical twins on a quiet machine
of two cores: their ratios are likeliest with 0.4 % and do not rule out 0.2 % or 0.7 %, so it is rounded up."""
TRIMMED = 0.1
"""Share of the clusters' means left out at either end: a disturbance that fills a whole process must not decide."""
NORMAL = 1.959964
T_QUANTILES = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484,
    2.0452, 2.0423,
)  # fmt: skip
"""97.5 % quantiles of Student's t for 1 to 30 degrees of freedom."""


def t_quantile(freedom: int) -> float:
    """How many standard errors a 95 % interval reaches to each side."""
    if freedom < 1:
        raise ValueError(f"one value has no spread; got {freedom} degrees of freedom.")
    if freedom <= len(T_QUANTILES):
        return T_QUANTILES[freedom - 1]
    cubed = (NORMAL**3 + NORMAL) / (4 * freedom)  # the first terms of its expansion around the normal quantile
    return NORMAL + cubed + (5 * NORMAL**5 + 16 * NORMAL**3 + 3 * NORMAL) / (96 * freedom**2)


def trimmed_mean(values: Values, trimmed: float = TRIMMED) -> tuple[float, float]:
    """The mean without the ends, and half the width of its 95 % interval (Tukey and McLaughlin, 1963)."""
    count = len(values)
    cut = int(trimmed * count)
    kept = count - 2 * cut
    ordered = np.sort(values)
    winsorized = np.clip(values, ordered[cut], ordered[count - cut - 1])
    error = float(np.std(winsorized, ddof=1)) * sqrt(count) / kept
    return float(ordered[cut : count - cut].mean()), t_quantile(kept - 1) * error


def clustered(values: Values, clusters: Sequence[int], processes: int = 1) -> tuple[float, float]:
    """The mean over clusters of the median in each, and half the width of its 95 % interval.

    The median keeps a disturbance of one turn from its process, the trimming one of a process from the result; both
    were chosen by simulation (the tests hold it).

    Args:
        values: one a round, on a scale on which differences add up (logarithms).
        clusters: for each round, which process took it; none at all counts as one process for all.
        processes: how many models' processes each value rests on (two for a ratio); it decides how much is assumed
            where there are fewer than three clusters.
    """
    labels = np.asarray(clusters) if len(clusters) else np.zeros(len(values), int)
    names = np.unique(labels)
    if len(names) >= FEWEST_CLUSTERS:
        return trimmed_mean(np.array([np.median(values[labels == name]) for name in names]))
    assumed = NORMAL * PROCESS_SPREAD * sqrt(processes / len(names))
    if len(values) < 2:
        return float(values.mean()), assumed
    return float(np.median(values)), hypot(trimmed_mean(values)[1], assumed)


def coarser_grouping(first: Sequence[int], second: Sequence[int]) -> Sequence[int]:
    """Of two ways to put the same rounds into clusters, the one with fewer: it holds the other's whole."""
    return first if len(set(first)) <= len(set(second)) else second


def harrell_davis_median(times: Values, width: int = 1) -> float:
    """The median of one round's calls, where ``width`` different calls came in whole passes.

    Each different call counts by its own median over the passes, and the median over the calls is the smooth one of
    Harrell and Davis (1982): it leans on the calls around the middle instead of on one, so that a call that was
    disturbed, or two calls that differ much in length, move it less.
    """
    medians = np.sort(np.median(times.reshape(-1, width), axis=0))
    return float(_weights(width) @ medians)


@cache
def _weights(count: int) -> Values:
    """How much each of ``count`` ordered values counts: the mass of Beta((n+1)/2, (n+1)/2) in its share of [0, 1]."""
    steps = 200
    points = (np.arange(count * steps) + 0.5) / (count * steps)
    density = (points * (1.0 - points)) ** ((count - 1) / 2)
    mass = density.reshape(count, steps).sum(axis=1)
    return np.asarray(mass / mass.sum())
