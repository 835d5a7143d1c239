"""The results of timing: what a job is, its latency with intervals, and the ratio of two jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot
from pathlib import Path
from typing import Any, Literal

import numpy as np

from compress.measure.quality.significance import (
    NORMAL,
    SESSION_SPREAD,
    Values,
    clustered_mean,
    coarser_grouping,
)
from compress.measure.result_base import ResultModel, Score
from compress.model_folder.model_info import VariantInfo
from compress.runtime.predictor import Placement

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
    died: bool = False
    """Whether it failed because its process ended or hung, which another try may not."""
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


def ratio(slower: Latency, faster: Latency, part: TimedPart = "model") -> Score | None:
    """Return how many times faster ``faster`` is, with its interval.

    The mean over processes of the median logarithm of the ratios within a round, with Student's t for the number of
    processes; differences between sessions, which one session cannot show, are added to its interval
    (`SESSION_SPREAD`). None where one of them has no figure, or where they are not from one session
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
    return with_half_width(exp(middle), hypot(half, NORMAL * SESSION_SPREAD))


def describe_precision(medians: Sequence[Score], ratios: Sequence[Score]) -> str | None:
    """Return `medians within ±1.2% and ratios within ±2.8%`, the widest intervals of each; None without medians."""
    groups = (("medians", medians), ("ratios", ratios))
    widest = {name: max(score.relative_half_width for score in scores) for name, scores in groups if scores}
    return " and ".join(f"{name} within ±{width:.{int(width < 0.1)}%}" for name, width in widest.items()) or None


def with_half_width(value: float, half: float) -> Score:
    """Return a value that is positive, with an interval that is symmetric in its logarithm."""
    return Score(value=value, low=value * exp(-half), high=value * exp(half))
