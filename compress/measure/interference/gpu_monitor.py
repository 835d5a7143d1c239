"""What else an accelerator did during a turn: other processes on it, and what held its clock down. Through NVML."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, Literal

from compress.measure.resources.energy import NvmlUnavailable, first_accelerator

NOT_WATCHED = "not watched on CUDA: "
HELD_DOWN = {0x04: "its power limit", 0x08: "heat or power", 0x20: "heat", 0x40: "heat", 0x80: "the power supply"}
"""NVML's clock event reasons that slow a device down against its will, as bits."""


@dataclass(frozen=True)
class GpuMonitor:
    """One accelerator, or why it is not watched."""

    missing: str | None = None
    nvml: Any = None
    handle: Any = None

    @classmethod
    def find(cls, device: Literal["cpu", "cuda"]) -> GpuMonitor:
        """The accelerator that this process sees first; nothing to watch on the CPU."""
        if device == "cpu":
            return cls()
        try:
            nvml, handle = first_accelerator()
            _reasons(nvml, handle)
        except NvmlUnavailable as reason:
            return cls(missing=f"{NOT_WATCHED}{reason}")
        except Exception as error:  # noqa: BLE001 - NVML's own errors have no common name without NVML
            return cls(missing=f"{NOT_WATCHED}NVML says: {error}")
        return cls(nvml=nvml, handle=handle)

    def look(self) -> int:
        """A moment, by the clock of NVML's samples: microseconds since 1970."""
        return time.time_ns() // 1000

    def held_down(self) -> tuple[str, ...] | None:
        """What holds the clock down just now; None where nothing tells."""
        if self.handle is None:
            return None
        try:
            bits = _reasons(self.nvml, self.handle)
        except self.nvml.NVMLError:
            return None
        return tuple(dict.fromkeys(words for bit, words in HELD_DOWN.items() if bits & bit))

    def others(self, since: int) -> float | None:
        """The share of the accelerator that processes of others have used since ``since``; None where nothing tells.

        A container may number processes otherwise than NVML does: where this process is not on its list, nobody on it
        can be told from the session's own workers.
        """
        if self.handle is None:
            return None
        try:
            there = {one.pid for one in self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)}
            if os.getpid() not in there:
                return None
            samples = self.nvml.nvmlDeviceGetProcessUtilization(self.handle, since)
        except self.nvml.NVMLError as error:
            return 0.0 if isinstance(error, getattr(self.nvml, "NVMLError_NotFound", ())) else None
        used: dict[int, list[int]] = {}
        for one in samples:
            if one.timeStamp > since and one.pid not in _family():
                used.setdefault(one.pid, []).append(one.smUtil)
        return min(1.0, sum(sum(shares) / len(shares) for shares in used.values()) / 100.0)


def _reasons(nvml: Any, handle: Any) -> int:
    """The reasons in force; NVML called them throttle reasons once."""
    try:
        ask = nvml.nvmlDeviceGetCurrentClocksEventReasons
    except AttributeError:
        ask = nvml.nvmlDeviceGetCurrentClocksThrottleReasons
    return int(ask(handle))


def _family() -> set[int]:
    """This process and the others that the same session has started."""
    import psutil

    return {os.getpid(), *(child.pid for child in psutil.Process(os.getppid()).children())}
