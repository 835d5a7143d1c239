"""Energy counters: joules that a processor or an accelerator has taken since some start, where the system tells.

Processors count by RAPL, readable under /sys/class/powercap (on most systems for root alone); accelerators through
NVML. The counter is of the whole package or board: everything that ran there is in it, so differences mean something
only while nothing else runs. Where nothing can be read, `source` says why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from compress.environment import require
from compress.errors import MissingExtra

POWERCAP = Path("/sys/class/powercap")
NOT_MEASURED = "not measured: "
VISIBLE = "CUDA_VISIBLE_DEVICES"

Counter = Callable[[], float | None]
"""Joules since some start; None where it can no longer be read."""


@dataclass(frozen=True)
class EnergyMeter:
    """One counter, or the reason why there is none."""

    source: str
    """`RAPL package-0`, `NVML NVIDIA H200`, or `not measured: …` with the reason."""
    counter: Counter | None = None

    @classmethod
    def find(cls, device: Literal["cpu", "cuda"] = "cpu", root: Path = POWERCAP) -> EnergyMeter:
        """The meter of the processor, or of the accelerator that this process sees first."""
        return _nvml() if device == "cuda" else _rapl(root)

    def read(self) -> float | None:
        """Joules since some start: only differences mean something."""
        return None if self.counter is None else self.counter()


@dataclass
class Package:
    """The counter of one RAPL zone, which starts again from 0 at its range."""

    folder: Path
    range: int
    """Microjoules at which it wraps around."""
    last: int
    turns: int = 0

    def read(self) -> int:
        """Microjoules, wraps included, if it was read at least once between two of them (about an hour apart)."""
        now = _number(self.folder / "energy_uj")
        if now < self.last:
            self.turns += 1
        self.last = now
        return self.turns * self.range + now


@dataclass
class Packages:
    """All packages of a machine as one counter."""

    zones: Sequence[Package] = field(default_factory=list)

    def __call__(self) -> float | None:
        """Joules of all packages; None where one cannot be read any more."""
        try:
            return sum(zone.read() for zone in self.zones) / 1e6
        except (OSError, ValueError):
            return None


def _rapl(root: Path) -> EnergyMeter:
    zones, names = [], []
    try:
        # A package's own parts (cores, memory) have two numbers in their names and are in its sum; a package may show
        # a second time under another interface (intel-rapl-mmio).
        folders = sorted(path for path in root.glob("*rapl*:*") if path.name.count(":") == 1)
        for folder in folders:
            name = (folder / "name").read_text(encoding="ascii").strip()
            if name.startswith("package") and name not in names:
                zones.append(Package(folder, _number(folder / "max_energy_range_uj"), _number(folder / "energy_uj")))
                names.append(name)
    except PermissionError:
        return EnergyMeter(f"{NOT_MEASURED}the energy counters under {root} may be read by the administrator alone")
    except (OSError, ValueError):
        return EnergyMeter(f"{NOT_MEASURED}the energy counters under {root} cannot be read")
    if not zones:
        return EnergyMeter(f"{NOT_MEASURED}this machine shows no energy counters (RAPL)")
    return EnergyMeter(f"RAPL {', '.join(names)}", Packages(zones))


def _number(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))


class NvmlUnavailable(Exception):
    """NVML does not tell of the accelerator; the message says why."""


def first_accelerator() -> tuple[Any, Any]:
    """NVML, and its handle of the accelerator that this process sees first; `NvmlUnavailable` where there is none."""
    try:
        nvml: Any = require("pynvml", "gpu")
    except MissingExtra as error:
        raise NvmlUnavailable(f"nvidia-ml-py is not installed ({error.hint})") from error
    try:
        nvml.nvmlInit()
        handle = _first_device(nvml, os.environ)
    except nvml.NVMLError as error:
        raise NvmlUnavailable(f"NVML says: {error}") from error
    if handle is None:
        raise NvmlUnavailable(f"the devices differ, and {VISIBLE} does not say which one is used")
    return nvml, handle


def _nvml() -> EnergyMeter:
    try:
        nvml, handle = first_accelerator()
    except NvmlUnavailable as reason:
        return EnergyMeter(f"{NOT_MEASURED}{reason}")
    try:
        nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        name = _text(nvml.nvmlDeviceGetName(handle))
    except nvml.NVMLError as error:
        return EnergyMeter(f"{NOT_MEASURED}NVML says: {error}")

    def counter() -> float | None:
        with suppress(nvml.NVMLError):
            return float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3
        return None

    return EnergyMeter(f"NVML {name}", counter)


def _first_device(nvml: Any, environment: Mapping[str, str]) -> Any | None:
    """The device that CUDA calls 0; None where that cannot be told without CUDA.

    NVML counts in the order of the bus, CUDA puts the fastest first unless told otherwise: among equal devices the two
    orders are one.
    """
    first = environment.get(VISIBLE, "0").split(",")[0].strip()
    if first.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(first)
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    alike = len({_text(nvml.nvmlDeviceGetName(handle)) for handle in handles}) == 1
    if not alike and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return None
    return nvml.nvmlDeviceGetHandleByIndex(int(first) if first.isdigit() else 0)


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
