"""Counters of what else ran during a worker's turns: other processes, the hypervisor, heat, a container's limit.

A worker reads the counters around each of its turns; ``verdict`` decides what they mean.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from compress.environment.cgroup_limits import CGROUP, OWN, cgroup_folders
from compress.environment.os_probe import read_int, read_text
from compress.measure.resources.nvml import Nvml, NvmlUnavailable
from compress.measure.result_base import ResultModel
from compress.measure.timing.cpu_affinity import BUSY, STOLEN, Cores, cpu_ticks

TICKS_PER_SECOND = 100.0
"""Of /proc/stat, on every common Linux."""
NOT_MONITORED = "not watched on CUDA: "
CLOCK_LIMITS = {0x04: "its power limit", 0x08: "heat or power", 0x20: "heat", 0x40: "heat", 0x80: "the power supply"}
"""NVML's clock event reasons that slow a device down, as bits."""
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
    ticks: dict[int, tuple[int, ...]]
    preempted: int | None
    throttled: int | None
    device: int = 0
    """Microseconds since 1970, the clock of NVML's samples."""


@dataclass(frozen=True)
class GpuMonitor:
    """One accelerator, or why it is not monitored."""

    missing: str | None = None
    nvml: Nvml | None = None

    @classmethod
    def find(cls, device: Literal["cpu", "cuda"]) -> GpuMonitor:
        """Return the monitor of the first visible accelerator; an empty one on the CPU."""
        if device == "cpu":
            return cls()
        try:
            nvml = Nvml.open()
            nvml.clock_event_bits()
        except NvmlUnavailable as reason:
            return cls(missing=f"{NOT_MONITORED}{reason}")
        return cls(nvml=nvml)

    def clock_limits(self) -> tuple[str, ...] | None:
        """Return what limits the clock just now; None where it is unknown."""
        with suppress(NvmlUnavailable):
            if self.nvml is not None:
                bits = self.nvml.clock_event_bits()
                return tuple(dict.fromkeys(reason for bit, reason in CLOCK_LIMITS.items() if bits & bit))
        return None

    def other_load(self, since: int) -> float | None:
        """Return the share of the accelerator that other processes have used since ``since``; None where unknown.

        A container may number processes differently from NVML: if this process is not in NVML's list, the session's own
        workers cannot be recognised in it.
        """
        with suppress(NvmlUnavailable):
            if self.nvml is not None and os.getpid() in self.nvml.process_memory():
                loads = self.nvml.process_loads(since)
                own = _session_processes() if loads else set()
                others = (sum(samples) / len(samples) for process, samples in loads.items() if process not in own)
                return min(1.0, sum(others) / 100.0)
        return None


@dataclass(frozen=True)
class InterferenceMonitor:
    """Reads the counters of the worker's cores and its accelerator, from inside the worker."""

    cores: Cores
    gpu: GpuMonitor = field(default_factory=GpuMonitor)

    def read(self) -> Counters:
        """Return the counters as they are now."""
        ticks = cpu_ticks() if self.cores.own else {}
        now = time.time_ns() // 1000
        return Counters(time.perf_counter(), time.process_time(), ticks, _preempted(), self._throttled(), now)

    def since(self, before: Counters) -> Interference:
        """Return what happened since ``before``."""
        held = self.gpu.clock_limits()  # at once, while the accelerator is still warm from the last call
        now, own = self.read(), self.cores.own
        turn = Interference(
            elapsed=now.clock - before.clock,
            preempted=_difference(before.preempted, now.preempted),
            throttled=_difference(before.throttled, now.throttled),
            device_load=self.gpu.other_load(before.device),
            device_held=held,
        )
        if not own or not before.ticks.keys() & now.ticks.keys() >= set(own):
            return turn
        cores = {
            "busy": _core_seconds(before, now, own, BUSY) - (now.processor - before.processor),
            "stolen": _core_seconds(before, now, own, (STOLEN,)),
            "neighbours": tuple(_core_seconds(before, now, group, BUSY) for group in self.cores.neighbours),
        }
        return turn.model_copy(update=cores)

    def _throttled(self) -> int | None:
        """Return how often heat or the container's quota has stopped the worker's cores so far."""
        heat = [read_int(Path(THROTTLE_COUNT.format(core))) for core in self.cores.own]
        counts = [count for count in (*heat, *_quota_stops(CGROUP, OWN)) if count is not None]
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


def _quota_stops(cgroup: Path, own: Path) -> list[int]:
    """Return how often CPU quotas have stopped each of this process's groups so far, where they report it."""
    stats = [read_text(folder / "cpu.stat") for folder in dict.fromkeys(cgroup_folders(cgroup, own, "cpu"))]
    return [int(count) for text in stats for count in re.findall(r"nr_throttled (\d+)", text)]


def _session_processes() -> set[int]:
    """Return this process and the others that the same session has started."""
    import psutil

    return {os.getpid(), *(child.pid for child in psutil.Process(os.getppid()).children())}
