"""The statistics of rounds of calls: quantiles and the mean with their intervals, throughput, and the spread."""

from collections.abc import Sequence
from math import exp, hypot

import numpy as np
from numpy.typing import NDArray

from compress.measure.quality.significance import (
    MIN_CLUSTERS,
    NORMAL,
    PROCESS_SPREAD,
    Values,
    clustered_mean,
    harrell_davis_median,
    resamples,
    t_quantile,
)
from compress.measure.result_base import Score
from compress.measure.timing.latency import CallTimes, Timing, with_half_width

QUANTILES = {"p50": (0.50, 1), "p95": (0.95, 20), "p99": (0.99, 100)}
"""Each with the number of calls below which it would rest on less than one of them."""
MIN_REMAINDER = 0.05
"""Least share of a call that remains when its wait is subtracted: waits are counted a moment longer than the call."""
Round = NDArray[np.float64]
"""Milliseconds of the calls of one round."""


def timing(
    rounds: Sequence[Round],
    count: int = 1000,
    seed: int = 0,
    processes: Sequence[int] = (),
    width: int = 1,
    waits: Sequence[Round] = (),
    weights: Sequence[float] = (),
) -> Timing:
    """Return quantiles over all calls, with intervals that rest on the processes.

    Args:
        rounds: milliseconds of the calls of each round.
        count: resamples of the processes (of the rounds, where there are fewer than three processes).
        seed: of the resamples.
        processes: the number of each round's process; empty counts as one for all.
        width: number of different calls in a pass.
        waits: milliseconds that each call waited for a core; empty rounds where the system does not report it.
        weights: how much each call of a pass counts; empty where all count alike.
    """
    calls = sum(map(len, rounds))
    medians = np.array([harrell_davis_median(times, width) for times in rounds])
    shares = {name: share for name, (share, least) in QUANTILES.items() if calls >= least}
    units = _resampling_units(rounds, processes)
    has_waits = bool(waits) and all(map(len, waits))
    delays = zip(rounds, waits, strict=True) if has_waits else ()
    undelayed = [np.maximum(times - lost, MIN_REMAINDER * times) for times, lost in delays]
    means = [mean_of_calls(times, width, weights) for times in undelayed or rounds]
    values = _quantiles(np.concatenate(units), list(shares.values()), weights)
    halves = _half_widths(units, list(shares.values()), count, seed, len(set(processes)) or 1, weights)
    quantiles = {
        name: with_half_width(float(value), float(half))
        for name, value, half in zip(shares, values, halves, strict=True)
    }
    return Timing(
        p50=quantiles["p50"],
        p95=quantiles.get("p95"),
        p99=quantiles.get("p99"),
        spread=spread(medians),
        calls=calls,
        round_medians=tuple(float(median) for median in medians),
        processes=tuple(processes),
        undelayed_medians=tuple(harrell_davis_median(times, width) for times in undelayed),
        mean=_mean(means, processes),
        undelayed_means=tuple(means),
    )


def mean_of_calls(times: Round, width: int, weights: Sequence[float] = ()) -> float:
    """Return the mean over the calls of a round, each by its median over the passes."""
    medians = np.median(times.reshape(-1, width), axis=0)
    return float(np.average(medians, weights=weights or None))


def _mean(means: Sequence[float], processes: Sequence[int]) -> Score:
    """Return the mean over the rounds with the interval of the processes."""
    middle, half = clustered_mean(np.log(means), processes)
    return with_half_width(exp(middle), half)


def _quantiles(times: Round, shares: Sequence[float], weights: Sequence[float]) -> Round:
    """Return quantiles of the times of whole passes, whose calls may count differently."""
    if not weights:
        return np.quantile(times, shares)
    counted = np.tile(weights, len(times) // len(weights))
    quantiles: Round = np.quantile(times, shares, weights=counted, method="inverted_cdf")
    return quantiles


def throughput(rounds: Sequence[CallTimes], batch: int) -> float:
    """Return rows a second: the rows of all calls over their total time, so that delayed calls count too."""
    return batch * sum(len(times.total) for times in rounds) / sum(sum(times.total) for times in rounds) * 1e3


def spread(medians: Round) -> float:
    """Return the interquartile range of the rounds' medians over their median."""
    low, middle, high = np.quantile(medians, [0.25, 0.5, 0.75])
    return float((high - low) / middle)


def _resampling_units(rounds: Sequence[Round], processes: Sequence[int]) -> list[Round]:
    """Return the calls in the groups that are resampled: by process, or by round where processes are too few."""
    if len(set(processes)) < MIN_CLUSTERS:
        return list(rounds)
    return [
        np.concatenate([times for times, owner in zip(rounds, processes, strict=True) if owner == process])
        for process in sorted(set(processes))
    ]


def _half_widths(
    units: Sequence[Round],
    shares: Sequence[float],
    count: int,
    seed: int,
    processes: int,
    weights: Sequence[float] = (),
) -> Values:
    """Return half the widths of the intervals of the quantiles' logarithms.

    The bootstrap's standard error, not its percentiles: for a handful of processes those are too narrow, while the
    standard error can be corrected for their number and multiplied with Student's t.
    """
    if len(units) < 2:
        return np.full(len(shares), NORMAL * PROCESS_SPREAD)
    drawn = (np.concatenate([units[index] for index in chosen]) for chosen in resamples(len(units), count, seed))
    resampled = np.array([_quantiles(calls, shares, weights) for calls in drawn])
    correction = len(units) / (len(units) - 1)
    halves = t_quantile(len(units) - 1) * np.log(resampled).std(axis=0) * np.sqrt(correction)
    assumed = 0.0 if processes >= MIN_CLUSTERS else NORMAL * PROCESS_SPREAD / np.sqrt(processes)
    return np.array([hypot(half, assumed) for half in halves])
