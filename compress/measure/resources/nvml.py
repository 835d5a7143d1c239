"""The first visible NVIDIA device through NVML (`nvidia-ml-py`): clocks, load, memory and energy, without CUDA."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compress.environment import require
from compress.errors import MissingExtra

VISIBLE = "CUDA_VISIBLE_DEVICES"
CLOCK_LIMITS = {0x04: "its power limit", 0x08: "heat or power", 0x20: "heat", 0x40: "heat", 0x80: "the power supply"}
"""NVML's clock event reasons that slow a device down, as bits."""


@dataclass
class Nvml:
    """NVML's module and the handle of one device; without them, and where NVML fails, readings are None."""

    module: Any = None
    handle: Any = None
    missing: str | None = None
    """Why there is no device, or why a reading failed."""

    @classmethod
    def open(cls) -> Nvml:
        """Return the device that CUDA numbers 0 in this process."""
        try:
            module: Any = require("pynvml", "gpu")
        except MissingExtra as error:
            return cls(missing=f"nvidia-ml-py is not installed ({error.hint})")
        try:
            module.nvmlInit()
            handle = _first_device(module, os.environ)
        except module.NVMLError as error:
            return cls(missing=f"NVML reports: {error}")
        if handle is None:
            return cls(missing=f"the devices differ, and {VISIBLE} does not select one")
        return cls(module, handle)

    def read(self, function: str, *arguments: int) -> Any:
        """Return what a function of NVML reports of the device; None where it fails."""
        if self.module is None:
            return None
        try:
            return getattr(self.module, function)(self.handle, *arguments)
        except self.module.NVMLError as error:
            self.missing = f"NVML reports: {error}"
            return None

    def joules(self) -> float | None:
        """Return the energy used since the driver was loaded."""
        millijoules = self.read("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1e3

    def clock_limits(self) -> tuple[str, ...] | None:
        """Return what limits the clock just now; older versions of NVML call the reasons throttle reasons."""
        name = "nvmlDeviceGetCurrentClocksEventReasons"
        bits = self.read(name if hasattr(self.module, name) else "nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if bits is None else tuple(dict.fromkeys(CLOCK_LIMITS[bit] for bit in CLOCK_LIMITS if bits & bit))

    def process_memory(self) -> dict[int, int | None]:
        """Return the bytes that each computing process holds on the device, by process id."""
        return {each.pid: each.usedGpuMemory for each in self.read("nvmlDeviceGetComputeRunningProcesses") or ()}

    def other_load(self, since: int) -> float | None:
        """Return the share of the device that other processes have used since ``since`` (microseconds).

        None also without samples of any process. A container may number processes differently from NVML: if this
        process is not in NVML's list, the session's own workers cannot be recognised in it.
        """
        import psutil

        samples = self.read("nvmlDeviceGetProcessUtilization", since)
        if samples is None or os.getpid() not in self.process_memory():
            return None
        session = {os.getpid(), *(child.pid for child in psutil.Process(os.getppid()).children())}
        loads: dict[int, list[int]] = {}
        for sample in samples:
            if sample.timeStamp > since and sample.pid not in session:
                loads.setdefault(sample.pid, []).append(sample.smUtil)
        return min(1.0, sum(sum(percents) / len(percents) for percents in loads.values()) / 100.0)


def _first_device(nvml: Any, environment: Mapping[str, str]) -> Any | None:
    """Return the device that CUDA numbers 0; None where that is unknown without CUDA.

    NVML counts in bus order, CUDA puts the fastest device first by default: among equal devices the orders agree.
    """
    first = environment.get(VISIBLE, "0").split(",")[0].strip()
    if first.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(first)
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    equal = len({nvml.nvmlDeviceGetName(handle) for handle in handles}) == 1
    if not equal and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return None
    return nvml.nvmlDeviceGetHandleByIndex(int(first) if first.isdigit() else 0)
