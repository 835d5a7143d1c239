"""The first visible NVIDIA device through NVML (`nvidia-ml-py`): clocks, load, memory and energy, without CUDA."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from compress.environment import require
from compress.errors import MissingExtra

VISIBLE = "CUDA_VISIBLE_DEVICES"
Value = TypeVar("Value")


class NvmlUnavailable(Exception):
    """NVML cannot read the accelerator; the message says why."""


@dataclass(frozen=True)
class Nvml:
    """NVML's module and the handle of one device; every method raises `NvmlUnavailable` where NVML fails."""

    module: Any
    handle: Any

    @classmethod
    def open(cls) -> Nvml:
        """Return the device that CUDA numbers 0 in this process."""
        try:
            module: Any = require("pynvml", "gpu")
        except MissingExtra as error:
            raise NvmlUnavailable(f"nvidia-ml-py is not installed ({error.hint})") from error
        try:
            module.nvmlInit()
            handle = _first_device(module, os.environ)
        except module.NVMLError as error:
            raise NvmlUnavailable(f"NVML reports: {error}") from error
        if handle is None:
            raise NvmlUnavailable(f"the devices differ, and {VISIBLE} does not select one")
        return cls(module, handle)

    @property
    def name(self) -> str:
        """The device's name."""
        return str(self._read(self.module.nvmlDeviceGetName))

    def joules(self) -> float:
        """Return the energy used since the driver was loaded."""
        return float(self._read(self.module.nvmlDeviceGetTotalEnergyConsumption)) / 1e3

    def clock_event_bits(self) -> int:
        """Return the reasons that limit the clock now, as bits; older versions call them throttle reasons."""
        name = "nvmlDeviceGetCurrentClocksEventReasons"
        older = "nvmlDeviceGetCurrentClocksThrottleReasons"
        return int(self._read(getattr(self.module, name, None) or getattr(self.module, older)))

    def process_memory(self) -> dict[int, int | None]:
        """Return the bytes that each computing process holds on the device, by process id."""
        processes = self._read(self.module.nvmlDeviceGetComputeRunningProcesses)
        return {process.pid: process.usedGpuMemory for process in processes}

    def process_loads(self, since: int) -> dict[int, list[int]]:
        """Return the load samples (percent) of each process after ``since`` (microseconds), by process id."""
        try:
            samples = self._read(lambda handle: self.module.nvmlDeviceGetProcessUtilization(handle, since))
        except NvmlUnavailable as error:
            if isinstance(error.__cause__, self.module.NVMLError_NotFound):
                return {}
            raise
        loads: dict[int, list[int]] = {}
        for sample in samples:
            if sample.timeStamp > since:
                loads.setdefault(sample.pid, []).append(sample.smUtil)
        return loads

    def _read(self, query: Callable[[Any], Value]) -> Value:
        try:
            return query(self.handle)
        except self.module.NVMLError as error:
            raise NvmlUnavailable(f"NVML reports: {error}") from error


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
