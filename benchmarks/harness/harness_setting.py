"""Shared by all parts of the check: the files, device and cores, settings, and the time left."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness.benchmark_model import Files
from benchmarks.harness.harness_results import Pairing
from benchmarks.harness.other_tools import pinned_to
from compress.errors import CompressError
from compress.measure.timing.latency import Job, Latency, ratio
from compress.measure.timing.timing_session import time_jobs
from compress.pipeline.strip_paths import strip_paths
from compress.recipe.measure_schema import Measure
from compress.runtime.predictor import Placement


@dataclass(frozen=True)
class Setting:
    """The settings of this run."""

    files: Files
    work: Path
    cores: tuple[int, ...] | None
    """Where the tools and the sessions compared with them run; None where the system cannot pin processes."""
    threads: int
    batch: int
    length: int
    turns: int
    """Of the harness and of each other tool."""
    sessions: int
    """Of identical twins; half as many with a slowed one."""
    measure: Measure
    """Of the sessions that check the harness against itself: the default budget."""
    comparison: Measure
    """Of the short sessions that are compared with other tools."""
    seconds: float
    """Seconds of another tool's timing in a turn."""
    deadline: float = field(default=float("inf"))
    """By the clock of ``time.monotonic``; no session starts after it."""

    @property
    def placement(self) -> Placement:
        """One CPU."""
        return Placement("cpu", self.threads)

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.deadline


def run_session(setting: Setting, case: str, jobs: Sequence[Job], cores: Sequence[int] | None, seed: int) -> Pairing:
    """One session of the harness; the ratio is the first job's time over the second's."""
    start = time.monotonic()
    try:
        with pinned_to(cores):
            latencies = time_jobs(jobs, (), setting.measure, seed=seed)
    except CompressError as error:
        return Pairing(case=case, ratio=None, reasons=(strip_paths(error.message),))
    return as_session(case, latencies, time.monotonic() - start)


def as_session(case: str, latencies: dict[str, Latency], seconds: float) -> Pairing:
    """Return the results of a session of two that the check uses."""
    slower, faster = latencies.values()
    loads = [one.noise.other_load for one in latencies.values() if one.noise and one.noise.other_load is not None]
    return Pairing(
        case=case,
        ratio=ratio(slower, faster),
        p50={key: one.model.p50.value for key, one in latencies.items() if one.model},
        unstable=any(one.status == "unstable" for one in latencies.values()),
        reasons=tuple(f"{key}: {strip_paths(one.reason)}" for key, one in latencies.items() if one.reason),
        other_load=max(loads, default=None),
        seconds=seconds,
    )
