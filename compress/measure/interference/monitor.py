"""Counters of what else ran during a worker's turns: other processes, the hypervisor, heat, a container's limit.

A worker reads the counters around each of its turns; ``verdict`` decides what they mean.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from compress.environment.cgroup_limits import CGROUP, OWN, cgroup_folders
from compress.environment.os_probe import read_int, read_text
from compress.measure.interference.gpu_monitor import GpuMonitor
from compress.measure.result_base import ResultModel
from compress.measure.timing.cpu_affinity import BUSY, STOLEN, cpu_ticks

TICKS_PER_SECOND = 100.0
"""Of /proc/stat, on every common Linux."""
THROTTLE_COUNT = "/sys/devices/system/cpu/cpu{}/thermal_throttle/core_throttle_count"


class Interference(ResultModel):
    """What happened during one turn; None where the system does not report it."""

    elapsed: float
    """Seconds."""
    busy: float | None = None
    """Core seconds of the worker's cores that other processes used."""
    stolen: float | None = None
    """Core seconds of the worker's cores that the hypervisor gave to other machines."""
    neighbours: tuple[float, ...] = ()
    """Core seconds in which each group of other cores was busy."""
    preempted: int | None = None
    throttled: int | None = None
    device_load: float | None = None
    """Share of the accelerator that other processes used."""
    device_held: tuple[str, ...] | None = None
    """What limited the accelerator's clock at the end of the turn."""


@dataclass(frozen=True)
class Counters:
    """Counters at one moment."""

    clock: float
    processor: float
    """CPU seconds of this process, all threads together."""
    ticks: dict[int, tuple[int, ...]]
    preempted: int | None
    throttled: int | None
    device: int = 0
    """Microseconds since 1970, the clock of NVML's samples."""


@dataclass(frozen=True)
class InterferenceMonitor:
    """Reads the counters of the worker's cores and its accelerator, from inside the worker."""

    own: tuple[int, ...]
    neighbours: tuple[tuple[int, ...], ...] = ()
    gpu: GpuMonitor = field(default_factory=GpuMonitor)

    def read(self) -> Counters:
        """Return the counters as they are now."""
        ticks = cpu_ticks() if self.own else {}
        now = time.time_ns() // 1000
        return Counters(time.perf_counter(), time.process_time(), ticks, _preempted(), self._throttled(), now)

    def since(self, before: Counters) -> Interference:
        """Return what happened since ``before``."""
        held = self.gpu.clock_limits()  # at once, while the accelerator is still warm from the last call
        now = self.read()
        known = all(core in counters.ticks for counters in (before, now) for core in self.own) and bool(self.own)
        busy = _core_seconds(before, now, self.own, BUSY) - (now.processor - before.processor) if known else None
        return Interference(
            elapsed=now.clock - before.clock,
            busy=busy,
            stolen=_core_seconds(before, now, self.own, (STOLEN,)) if known else None,
            neighbours=tuple(_core_seconds(before, now, group, BUSY) for group in self.neighbours) if known else (),
            preempted=_difference(before.preempted, now.preempted),
            throttled=_difference(before.throttled, now.throttled),
            device_load=self.gpu.other_load(before.device),
            device_held=held,
        )

    def _throttled(self) -> int | None:
        """Return how often heat or the container's quota has stopped the worker's cores so far."""
        heat = [read_int(Path(THROTTLE_COUNT.format(core))) for core in self.own]
        counts = [count for count in (*heat, _quota_stops(CGROUP, OWN)) if count is not None]
        return sum(counts) if counts else None


def _core_seconds(before: Counters, now: Counters, cores: Iterable[int], columns: tuple[int, ...]) -> float:
    return sum(
        (now.ticks[core][column] - before.ticks[core][column]) / TICKS_PER_SECOND
        for core in cores
        if core in now.ticks and core in before.ticks
        for column in columns
    )


def _difference(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else now - before


def _preempted() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _quota_stops(cgroup: Path, own: Path) -> int | None:
    """Return how often CPU quotas have stopped this process's groups so far; None where no group reports it."""
    total = None
    for folder in dict.fromkeys(cgroup_folders(cgroup, own, "cpu")):
        for line in read_text(folder / "cpu.stat").splitlines():
            name, _, value = line.partition(" ")
            if name == "nr_throttled" and value.isdigit():
                total = (total or 0) + int(value)
    return total
