"""Counters of what else ran during a worker's turns: other processes, the hypervisor, heat, a container's limit.

A worker reads the counters around each of its turns; ``verdict`` decides what they mean.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from compress.environment.cgroup_limits import CGROUP, OWN, cgroup_folders
from compress.environment.os_probe import read_int, read_text
from compress.measure.resources.nvml import Nvml
from compress.measure.result_base import ResultModel
from compress.measure.timing.cpu_affinity import Cores, core_seconds

THROTTLE_COUNT = "/sys/devices/system/cpu/cpu{}/thermal_throttle/core_throttle_count"


class Interference(ResultModel):
    """What happened during one turn; None where the system does not report it."""

    elapsed: float = 0.0
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
    cores: dict[int, tuple[float, float]]
    """Seconds that each core was busy, and that a hypervisor took from it."""
    preempted: int | None
    throttled: int | None
    device: int = 0
    """Microseconds since 1970, the clock of NVML's samples."""


@dataclass(frozen=True)
class InterferenceMonitor:
    """Reads the counters of the worker's cores and its accelerator, from inside the worker."""

    cores: Cores
    nvml: Nvml = field(default_factory=Nvml)

    def read(self) -> Counters:
        """Return the counters as they are now."""
        cores = core_seconds() if self.cores.own else {}
        now = time.time_ns() // 1000
        return Counters(time.perf_counter(), time.process_time(), cores, _preempted(), self._throttled(), now)

    def since(self, before: Counters) -> Interference:
        """Return what happened since ``before``."""
        held = self.nvml.clock_limits()  # at once, while the accelerator is still warm from the last call
        now, own = self.read(), self.cores.own
        both = before.cores.keys() & now.cores.keys()
        known = bool(own) and both.issuperset(own)

        def passed(cores: Iterable[int], column: int) -> float:
            return sum(now.cores[core][column] - before.cores[core][column] for core in cores if core in both)

        return Interference(
            elapsed=now.clock - before.clock,
            busy=passed(own, 0) - (now.processor - before.processor) if known else None,
            stolen=passed(own, 1) if known else None,
            neighbours=tuple(passed(group, 0) for group in self.cores.neighbours) if known else (),
            preempted=_difference(before.preempted, now.preempted),
            throttled=_difference(before.throttled, now.throttled),
            device_load=self.nvml.other_load(before.device),
            device_held=held,
        )

    def _throttled(self) -> int | None:
        """Return how often heat or the container's quota has stopped the worker's cores so far."""
        heat = [read_int(Path(THROTTLE_COUNT.format(core))) for core in self.cores.own]
        counts = [count for count in (*heat, *_quota_stops(CGROUP, OWN)) if count is not None]
        return sum(counts) if counts else None


def _difference(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else now - before


def _preempted() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _quota_stops(cgroup: Path, own: Path) -> list[int]:
    """Return how often CPU quotas have stopped each of this process's groups so far, where they report it."""
    stats = [read_text(folder / "cpu.stat") for folder in dict.fromkeys(cgroup_folders(cgroup, own, "cpu"))]
    return [int(count) for text in stats for count in re.findall(r"nr_throttled (\d+)", text)]
