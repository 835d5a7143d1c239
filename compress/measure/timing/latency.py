"""How fast models answer: every one in fresh processes of its own, all of them taking turns.

Jobs that share a place, a batch and a length form a session. Each job is a resident worker process; a round gives every
worker one turn over the same inputs, in an order that is shuffled and then reversed, so that a machine that slows down
slows all of them and ratios hold. Every few rounds the processes are replaced by fresh ones, since two processes of the
same model differ: intervals rest on the processes, not on the many calls of each (see ``clusters``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from compress.measure.quality.significance import resamples
from compress.measure.result_base import ResultModel, Score
from compress.measure.timing.clustered_ci import (
    FEWEST_CLUSTERS,
    NORMAL,
    PROCESS_SPREAD,
    SESSION_SPREAD,
    Values,
    clustered,
    coarser_grouping,
    harrell_davis_median,
    t_quantile,
)
from compress.model_info import VariantInfo
from compress.runtime.predictor import Placement

QUANTILES = {"p50": (0.50, 1), "p95": (0.95, 20), "p99": (0.99, 100)}
"""Each with the calls below which it would rest on less than one of them."""
LEAST_LEFT = 0.05
"""Share of a call that is left to it at least: the threads' waits are counted a moment longer than the call."""
Part = Literal["model", "end_to_end", "device"]
"""What of a latency is meant: the model alone, from texts to answers, or the work on the accelerator alone."""


@dataclass(frozen=True)
class Job:
    """One model to time at one place; ``key`` is what the caller calls it."""

    key: str
    folder: Path
    variant: VariantInfo | None
    place: Placement
    batch: int = 1
    length: int | None = None
    """Pieces of every input; None takes the lengths of the texts as they are, and times end to end too."""
    slowed: float = 0.0
    """Share of each call's time that is waited after it: a handicap of known size on the CPU, to check the harness."""

    @property
    def session(self) -> tuple[Any, ...]:
        """Jobs with the same one are timed together."""
        return (self.place.device, self.place.threads, self.batch, self.length)


class Timing(ResultModel):
    """Milliseconds of one call with one batch of rows."""

    p50: Score
    p95: Score | None
    """None below 20 calls."""
    p99: Score | None
    """None below 100 calls."""
    spread: float
    """Interquartile range of the rounds' medians over their median: what the machine did, not the inputs."""
    calls: int
    round_medians: tuple[float, ...]
    processes: tuple[int, ...] = ()
    """For each round, which process took it, from 0; empty in older reports, where one process took them all."""
    undelayed_medians: tuple[float, ...] = ()
    """The rounds' medians of what was left of each call without the time in which it stood in line for a core: what
    ratios rest on. Empty where the system does not tell."""


class Noise(ResultModel):
    """What else happened on the machine during this job's turns; None where the system does not tell."""

    other_load: float | None = None
    """Share of the worker's cores that other processes took."""
    beside: float | None = None
    """Share of the other cores this process may use that were busy: they share caches, memory and power."""
    stolen: float | None = None
    """Share of the worker's cores that the hypervisor gave to others."""
    preempted: float | None = None
    """Times a second that the worker was put off its core."""
    waited: float | None = None
    """Share of its calls' time in which the worker stood in line for a core."""
    throttled: int | None = None
    """Times that heat or a container's limit held the worker up."""
    device_load: float | None = None
    """Share of the accelerator that other processes took."""
    device_throttled: int | None = None
    """Turns at whose end something held the accelerator's clock down."""
    device_held_by: tuple[str, ...] = ()
    """What did."""


class UnderLoad(ResultModel):
    """How one process answers when several callers ask at once, each waiting for its answer (a closed loop)."""

    callers: int
    rows_per_second: float
    p50: float
    """Milliseconds from asking to having the answer."""
    p95: float | None
    """None below 20 calls."""
    calls: int
    unstable: str | None = None
    """Why it is not to be relied on: its laps differ, or other work was there; None where nothing was seen."""


class Latency(ResultModel):
    """What the session found out about one job."""

    status: Literal["measured", "unstable", "failed", "not measured"]
    reason: str | None = None
    """Why the status is not `measured`; or what is to be known beside it: a process that died and was replaced, or what
    nothing could be seen of (`not watched on CUDA: …`)."""
    model: Timing | None = None
    """From padded arrays to outputs on the host."""
    end_to_end: Timing | None = None
    """From texts to decoded answers; None at a fixed length, which no text has."""
    device: Timing | None = None
    """The forward pass alone by the accelerator's own clock; None elsewhere."""
    rows_per_second: float | None = None
    """Rows of all calls over the time that they took together, stalls included: less than a batch over the median."""
    under_load: tuple[UnderLoad, ...] = ()
    """Throughput and waiting for each number of callers that was asked for."""
    load_seconds: float | None = None
    """From nothing loaded to a model that can answer, in a fresh process; its files were read before."""
    first_answer_seconds: float | None = None
    """From the start of the process to its first answer: the interpreter, imports, loading and one call."""
    resident_memory: int | None = None
    """Resident memory of the worker process after its last turn, in bytes."""
    peak_memory: int | None = None
    """Largest resident memory of the worker process, in bytes."""
    device_memory: int | None = None
    """Largest allocation on the accelerator, in bytes."""
    joules_per_row: float | None = None
    energy: str | None = None
    """What the energy was read from, or why it was not measured."""
    noise: Noise | None = None
    precision: float | None = None
    """Half the width of the median's interval over the median: what the session's time has bought."""
    lengths: tuple[int, ...] = ()
    """Padded pieces of each call of a turn: what the times are times of."""
    seconds: float | None = None
    """What the session spent on this job, starting its processes included."""
    runs_with: Mapping[str, Any] = {}
    """Runtime, version, threads and session options, as the predictor describes itself."""

    @property
    def timed(self) -> bool:
        """Whether there is a figure, be it an unstable one."""
        return self.model is not None


Round = NDArray[np.float64]
"""Milliseconds of the calls of one round."""


def timing(
    rounds: Sequence[Round],
    count: int = 1000,
    seed: int = 0,
    processes: Sequence[int] = (),
    width: int = 1,
    waited: Sequence[Round] = (),
) -> Timing:
    """Quantiles over all calls, with intervals that rest on the processes.

    Args:
        rounds: milliseconds of the calls of each round.
        count: resamples of the processes (of the rounds, where there are fewer than three processes).
        seed: of the resamples.
        processes: which process took each round; none counts as one for all.
        width: how many different calls a pass has.
        waited: what of each call the process stood in line for a core; empty rounds where the system does not tell.
    """
    calls = sum(map(len, rounds))
    medians = np.array([harrell_davis_median(one, width) for one in rounds])
    shares = {name: share for name, (share, least) in QUANTILES.items() if calls >= least}
    units = _units(rounds, processes)
    values = np.quantile(np.concatenate(units), list(shares.values()))
    halves = _half_widths(units, list(shares.values()), count, seed, len(set(processes)) or 1)
    quantiles = {
        name: _around(float(value), float(half)) for name, value, half in zip(shares, values, halves, strict=True)
    }
    return Timing(
        p50=quantiles["p50"],
        p95=quantiles.get("p95"),
        p99=quantiles.get("p99"),
        spread=spread(medians),
        calls=calls,
        round_medians=tuple(float(median) for median in medians),
        processes=tuple(processes),
        undelayed_medians=tuple(
            harrell_davis_median(np.maximum(one - lost, LEAST_LEFT * one), width)
            for one, lost in zip(rounds, waited, strict=True)
        )
        if waited and all(map(len, waited))
        else (),
    )


def throughput(rounds: Sequence[Round], batch: int) -> float:
    """Rows a second: the rows of all calls over the time they took, so that those that were held up count too."""
    return batch * sum(map(len, rounds)) / float(sum(one.sum() for one in rounds)) * 1e3


def spread(medians: Round) -> float:
    """The interquartile range of the rounds' medians over their median."""
    low, middle, high = np.quantile(medians, [0.25, 0.5, 0.75])
    return float((high - low) / middle)


def ratio(slower: Latency, faster: Latency, part: Part = "model") -> Score | None:
    """How many times faster ``faster`` is, with its interval.

    The mean over processes of the median logarithm of the ratios within a round, and Student's t for so many processes;
    what a whole session shares, and so cannot see, is added to its interval (``clusters.SESSION_SPREAD``). None where
    one of them has no figure, or where they do not come from one session (other numbers of rounds).
    """
    above, below = _part(slower, part), _part(faster, part)
    if above is None or below is None or len(above.round_medians) != len(below.round_medians):
        return None
    both = above.undelayed_medians and below.undelayed_medians
    times = [np.array(one.undelayed_medians if both else one.round_medians) for one in (above, below)]
    logarithms: Values = np.log(times[0] / times[1])
    middle, half = clustered(logarithms, coarser_grouping(above.processes, below.processes), processes=2)
    return _around(exp(middle), hypot(half, NORMAL * SESSION_SPREAD))


def _part(latency: Latency, part: Part) -> Timing | None:
    parts = {"model": latency.model, "end_to_end": latency.end_to_end, "device": latency.device}
    return parts[part]


def _units(rounds: Sequence[Round], processes: Sequence[int]) -> list[Round]:
    """The calls in the portions that are resampled: by process, or by round where processes are too few."""
    if len(set(processes)) < FEWEST_CLUSTERS:
        return list(rounds)
    return [
        np.concatenate([one for one, owner in zip(rounds, processes, strict=True) if owner == process])
        for process in sorted(set(processes))
    ]


def _half_widths(units: Sequence[Round], shares: Sequence[float], count: int, seed: int, processes: int) -> Values:
    """Half the widths of the quantiles' intervals, of their logarithms.

    The bootstrap's standard error, not its percentiles: for a handful of processes those are too narrow, while the
    standard error can be mended for their number and multiplied with Student's t.
    """
    drawn = np.array(
        [
            np.quantile(np.concatenate([units[index] for index in chosen]), shares)
            for chosen in resamples(len(units), count, seed)
        ]
    )
    if len(units) < 2:
        return np.full(len(shares), NORMAL * PROCESS_SPREAD)
    few = len(units) / (len(units) - 1)
    halves = t_quantile(len(units) - 1) * np.log(drawn).std(axis=0) * np.sqrt(few)
    assumed = 0.0 if processes >= FEWEST_CLUSTERS else NORMAL * PROCESS_SPREAD / np.sqrt(processes)
    return np.array([hypot(half, assumed) for half in halves])


def _around(value: float, half: float) -> Score:
    return Score(value=value, low=value * exp(-half), high=value * exp(half))
