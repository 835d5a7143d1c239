"""Settings and load of the machine that make two timings of the same thing differ.

Linux reports most of them under /sys and /proc; elsewhere, and in containers that hide them, a field is None.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from compress.environment.os_probe import read_int, read_text

SYS = Path("/sys")
PROC = Path("/proc")


class CpuState(BaseModel):
    """What timings depend on besides the hardware; None where the system does not report it."""

    model_config = ConfigDict(frozen=True)

    governor: str | None = None
    """The frequency governor; several names where cores differ."""
    frequency: tuple[float, float] | None = None
    """Lowest and highest limit of any core, in MHz."""
    turbo: bool | None = None
    power: str | None = None
    """`mains` or `battery`."""
    load: float | None = None
    """Load average of the last minute, over all cores of the machine."""
    hypervisor: str | None = None
    """Its name or vendor, or `unnamed`; None where none is detected."""
    last_level_cache: int | None = None
    """Bytes."""
    threads_per_core: int | None = None


def describe_cpu_state(sys_root: Path = SYS, proc_root: Path = PROC) -> CpuState:
    """Read the state from the system's files."""
    import psutil

    cpu = sys_root / "devices/system/cpu"
    governors = {read_text(path) for path in cpu.glob("cpu[0-9]*/cpufreq/scaling_governor")} - {""}
    cores = psutil.cpu_count(logical=False)
    return CpuState(
        governor=", ".join(sorted(governors)) or None,
        frequency=_frequency(cpu),
        turbo=_turbo(cpu),
        power=_power(),
        load=_load(),
        hypervisor=_hypervisor(sys_root, proc_root),
        last_level_cache=_last_level_cache(cpu / "cpu0/cache"),
        threads_per_core=(psutil.cpu_count() or cores) // cores if cores else None,
    )


def _frequency(cpu: Path) -> tuple[float, float] | None:
    """Return the limits in MHz; the kernel reports kHz."""
    lows = [read_int(path) for path in cpu.glob("cpu[0-9]*/cpufreq/scaling_min_freq")]
    highs = [read_int(path) for path in cpu.glob("cpu[0-9]*/cpufreq/scaling_max_freq")]
    low = min((frequency for frequency in lows if frequency), default=None)
    high = max((frequency for frequency in highs if frequency), default=None)
    return (low / 1e3, high / 1e3) if low and high else None


def _turbo(cpu: Path) -> bool | None:
    switched_off = read_int(cpu / "intel_pstate/no_turbo")
    if switched_off is not None:
        return switched_off == 0
    boost = read_int(cpu / "cpufreq/boost")
    return None if boost is None else boost == 1


def _power() -> str | None:
    """Return the power source; None without a battery."""
    import psutil

    battery = psutil.sensors_battery() if sys.platform in {"linux", "darwin", "win32"} else None
    if battery is None or battery.power_plugged is None:
        return None
    return "mains" if battery.power_plugged else "battery"


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):  # Windows has none
        return None


def _hypervisor(sys_root: Path, proc_root: Path) -> str | None:
    if name := read_text(sys_root / "hypervisor/type"):
        return name
    if " hypervisor" not in read_text(proc_root / "cpuinfo"):
        return None
    return read_text(sys_root / "class/dmi/id/sys_vendor") or "unnamed"


def _last_level_cache(cache: Path) -> int | None:
    """Return the size of the first core's highest cache level."""
    sizes = {read_int(index / "level") or 0: read_text(index / "size") for index in cache.glob("index[0-9]*")}
    size = sizes[max(sizes)] if sizes else ""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return int(size[:-1]) * units[size[-1]] if size and size[-1] in units and size[:-1].isdigit() else None
