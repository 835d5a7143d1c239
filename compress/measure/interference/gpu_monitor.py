"""What else an accelerator did during a turn: other processes' load, and what limited its clock. Read through NVML."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from compress.measure.resources.nvml import Nvml, NvmlUnavailable

NOT_MONITORED = "not watched on CUDA: "
CLOCK_LIMITS = {0x04: "its power limit", 0x08: "heat or power", 0x20: "heat", 0x40: "heat", 0x80: "the power supply"}
"""NVML's clock event reasons that slow a device down, as bits."""


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
        if self.nvml is None:
            return None
        try:
            bits = self.nvml.clock_event_bits()
        except NvmlUnavailable:
            return None
        return tuple(dict.fromkeys(reason for bit, reason in CLOCK_LIMITS.items() if bits & bit))

    def other_load(self, since: int) -> float | None:
        """Return the share of the accelerator that other processes have used since ``since``; None where unknown.

        A container may number processes differently from NVML: if this process is not in NVML's list, the session's own
        workers cannot be recognised in it.
        """
        if self.nvml is None:
            return None
        try:
            if os.getpid() not in self.nvml.process_memory():
                return None
            loads = self.nvml.process_loads(since)
        except NvmlUnavailable:
            return None
        own = _session_processes() if loads else set()
        others = (sum(samples) / len(samples) for process, samples in loads.items() if process not in own)
        return min(1.0, sum(others) / 100.0)


def _session_processes() -> set[int]:
    """Return this process and the others that the same session has started."""
    import psutil

    return {os.getpid(), *(child.pid for child in psutil.Process(os.getppid()).children())}
