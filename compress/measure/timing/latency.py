"""The results of timing: what a job is, its latency with intervals, and the ratio of two jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from compress.measure.quality.significance import (
    MIN_CLUSTERS,
    NORMAL,
    PROCESS_SPREAD,
    SESSION_SPREAD,
    Values,
    clustered_mean,
    coarser_grouping,
    harrell_davis_median,
    resamples,
    t_quantile,
)
from compress.measure.result_base import ResultModel, Score
from compress.model_folder.model_info import VariantInfo
from compress.runtime.predictor import Placement

QUANTILES = {"p50": (0.50, 1), "p95": (0.95, 20), "p99": (0.99, 100)}
"""Each with the number of calls below which it would rest on less than one of them."""
MIN_REMAINDER = 0.05
"""Least share of a call that remains when its wait is subtracted: waits are counted a moment longer than the call."""
Quantile = Literal["p50", "p95", "p99"]
TimedPart = Literal["model", "end_to_end", "device"]
"""The model alone, from texts to decoded predictions, or the work on the accelerator alone."""


@dataclass(frozen=True)
class Job:
    """One model to time on one device; ``key`` is the caller's name for it."""

    key: str
    folder: Path
    variant: VariantInfo | None
    placement: Placement
    batch: int = 1
    length: int | None = None
    """Pieces of every input; None uses the lengths of the texts, and times end to end too."""
    delay: float = 0.0
    """Busy wait after each call as a share of its time: a handicap of known size on the CPU, to check the harness."""

    @property
    def session(self) -> tuple[Any, ...]:
        """Jobs with an equal one are timed together."""
        return (self.placement.device, self.placement.threads, self.batch, self.length)


class CallTimes(ResultModel):
    """Milliseconds of calls in their order."""

    total: tuple[float, ...] = ()
    waits: tuple[float, ...] = ()
    """What the process waited for a core during each; empty where the system does not report it."""


class Timing(ResultModel):
    """Milliseconds of one call with one batch of rows."""

    p50: Score
    p95: Score | None
    """None below 20 calls."""
    p99: Score | None
    """None below 100 calls."""
    mean: Score | None = None
    """Over the calls, each by its median over the passes; None in older reports."""
    spread: float
    """Interquartile range of the rounds' medians over their median: variation of the machine, not of the inputs."""
    calls: int
    round_medians: tuple[float, ...]
    processes: tuple[int, ...] = ()
    """For each round, the number of its process, from 0; empty in older reports, where one process ran them all."""
    undelayed_medians: tuple[float, ...] = ()
    """The rounds' medians of each call's time without its wait for a core: ratios rest on these. Empty where the system
    does not report waits."""
    undelayed_means: tuple[float, ...] = ()
    """The rounds' means of the same times, each call by its median over the passes."""


class Noise(ResultModel):
    """What else happened on the machine during this job's turns; None where the system does not report it."""

    other_load: float | None = None
    """Share of the worker's cores that other processes used."""
    beside: float | None = None
    """Share of the other cores this process may use that were busy: they share caches, memory and power."""
    stolen: float | None = None
    """Share of the worker's cores that the hypervisor gave to others."""
    preempted: float | None = None
    """Preemptions of the worker a second."""
    waited: float | None = None
    """Share of its calls' time in which the worker waited for a core."""
    throttled: int | None = None
    """How often heat or a container's limit stopped the worker."""
    device_load: float | None = None
    """Share of the accelerator that other processes used."""
    device_throttled: int | None = None
    """Turns at whose end something limited the accelerator's clock."""
    device_held_by: tuple[str, ...] = ()
    """What limited it."""


class UnderLoad(ResultModel):
    """Throughput and latency of one process with several callers at once, each waiting for its result (closed loop)."""

    callers: int
    rows_per_second: float
    p50: float
    """Milliseconds from the call to its result."""
    p95: float | None
    """None below 20 calls."""
    calls: int
    unstable: str | None = None
    """Why it is unreliable: its laps differ, or other work ran; None where neither was seen."""


class Latency(ResultModel):
    """The result of one job."""

    status: Literal["measured", "unstable", "failed", "not measured"]
    reason: str | None = None
    """Why the status is not `measured`; or a note: a process died and was restarted, or interference could not be
    monitored (`not watched on CUDA: …`)."""
    model: Timing | None = None
    """From padded arrays to outputs on the host."""
    end_to_end: Timing | None = None
    """From texts to decoded predictions; None at a fixed length, which no text has."""
    device: Timing | None = None
    """The forward pass alone by the accelerator's own clock; None on the CPU."""
    rows_per_second: float | None = None
    """Rows of all calls over their total time, stalls included: less than a batch over the median."""
    under_load: tuple[UnderLoad, ...] = ()
    """Throughput and latency for each requested number of callers."""
    load_seconds: float | None = None
    """From nothing loaded to a model ready to run, in a fresh process; its files are in the page cache."""
    first_answer_seconds: float | None = None
    """From the start of the process to its first output: the interpreter, imports, loading and one call."""
    resident_memory: int | None = None
    """Resident memory of the worker process after its last turn, in bytes."""
    peak_memory: int | None = None
    """Largest resident memory of the worker process, in bytes."""
    device_memory: int | None = None
    """Largest allocation on the accelerator, in bytes."""
    joules_per_row: float | None = None
    energy: str | None = None
    """The source of the energy readings, or why there are none."""
    noise: Noise | None = None
    precision: float | None = None
    """Half the width of the median's interval over the median: the precision that the session's time bought."""
    lengths: tuple[int, ...] = ()
    """Padded pieces of each call of a turn."""
    seconds: float | None = None
    """Time that the session spent on this job, starting its processes included."""
    by_mean: bool = False
    """Whether the time of a call depends on what its texts say, as a cascade's does: then its mean counts, not its
    median."""
    runs_with: Mapping[str, Any] = {}
    """Runtime, version, threads and session options, from ``Predictor.describe``."""

    @property
    def timed(self) -> bool:
        """Whether there is a figure, even an unstable one."""
        return self.model is not None

    def quantile(self, name: Quantile, part: TimedPart = "model") -> Score | None:
        """Return a quantile of the milliseconds of a call; None where the part was not timed, or in too few calls."""
        timing: Timing | None = getattr(self, part)
        return {"p50": timing.p50, "p95": timing.p95, "p99": timing.p99}[name] if timing else None

    def typical(self, part: TimedPart = "model") -> Score | None:
        """Return the milliseconds by which rows are compared: the median of a call, or the mean where that counts."""
        timing: Timing | None = getattr(self, part)
        return (timing.mean if self.by_mean else timing.p50) if timing else None


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
        name: _with_half_width(float(value), float(half))
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
    return _with_half_width(exp(middle), half)


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


def ratio(slower: Latency, faster: Latency, part: TimedPart = "model") -> Score | None:
    """Return how many times faster ``faster`` is, with its interval.

    The mean over processes of the median logarithm of the ratios within a round, with Student's t for the number of
    processes; differences between sessions, which one session cannot show, are added to its interval
    (``clustered_ci.SESSION_SPREAD``). None where one of them has no figure, or where they are not from one session
    (different numbers of rounds).
    """
    above, below = getattr(slower, part), getattr(faster, part)
    if above is None or below is None or len(above.round_medians) != len(below.round_medians):
        return None
    if slower.by_mean or faster.by_mean:
        if not (above.undelayed_means and below.undelayed_means):
            return None
        times = [np.array(timing.undelayed_means) for timing in (above, below)]
    else:
        both = above.undelayed_medians and below.undelayed_medians
        times = [np.array(timing.undelayed_medians if both else timing.round_medians) for timing in (above, below)]
    logarithms: Values = np.log(times[0] / times[1])
    middle, half = clustered_mean(logarithms, coarser_grouping(above.processes, below.processes), processes=2)
    return _with_half_width(exp(middle), hypot(half, NORMAL * SESSION_SPREAD))


def describe_precision(medians: Sequence[Score], ratios: Sequence[Score]) -> str | None:
    """Return `medians within ±1.2% and ratios within ±2.8%`, the widest intervals of each; None without medians."""
    groups = (("medians", medians), ("ratios", ratios))
    widest = {name: max(score.relative_half_width for score in scores) for name, scores in groups if scores}
    return " and ".join(f"{name} within ±{width:.{int(width < 0.1)}%}" for name, width in widest.items()) or None


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


def _with_half_width(value: float, half: float) -> Score:
    return Score(value=value, low=value * exp(-half), high=value * exp(half))
