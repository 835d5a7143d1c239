"""The processor: its model and instruction sets, and the settings and load that make two timings of it differ.

Linux reports most settings under /sys and /proc; elsewhere, and in containers that hide them, a field is None.
"""

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from compress.environment.os_probe import UNKNOWN, command_output, read_int, read_text, usable_cores

# The name in /proc/cpuinfo, and ours. Only what affects the speed or exactness of INT8 and bf16.
_X86 = {
    "avx2": "avx2",
    "avx512f": "avx512",
    "avx_vnni": "avx_vnni",
    "avx512_vnni": "avx512_vnni",
    "avx512_bf16": "avx512_bf16",
    "avx512_fp16": "avx512_fp16",
    "amx_bf16": "amx_bf16",
    "amx_int8": "amx_int8",
}
_ARM = {"asimd": "neon", "asimddp": "dotprod", "i8mm": "i8mm", "bf16": "bf16", "sve": "sve", "sve2": "sve2"}
_MACOS = {
    "hw.optional.avx2_0": "avx2",
    "hw.optional.avx512f": "avx512",
    "hw.optional.neon": "neon",
    "hw.optional.arm.FEAT_DotProd": "dotprod",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_BF16": "bf16",
}


@dataclass(frozen=True)
class Cpu:
    """The properties of a processor that affect speed."""

    model: str
    machine: str
    instructions: tuple[str, ...] | None
    """None where the system does not report them."""
    cores: int
    """Cores that this process may use, which in a container are fewer than the machine has."""
    cores_of_machine: int

    @property
    def has_vnni(self) -> bool | None:
        """Whether there are INT8 dot product instructions; without them INT8 is hardly faster and may saturate."""
        return self._has_any({"avx512_vnni", "avx_vnni", "amx_int8", "dotprod", "i8mm"})

    @property
    def has_bf16(self) -> bool | None:
        """Whether there are bf16 dot product instructions."""
        return self._has_any({"avx512_bf16", "amx_bf16", "bf16"})

    def _has_any(self, names: set[str]) -> bool | None:
        return None if self.instructions is None else not names.isdisjoint(self.instructions)


def describe_cpu() -> Cpu:
    """Describe the processor of this machine."""
    model, instructions = UNKNOWN, None
    if sys.platform == "linux":
        model, instructions = read_cpuinfo(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    elif sys.platform == "darwin":
        model, instructions = read_sysctl(command_output(["sysctl", "-a"]))
    return Cpu(model, platform.machine(), instructions, usable_cores(), os.cpu_count() or 1)


def read_cpuinfo(text: str) -> tuple[str, tuple[str, ...] | None]:
    """Parse model and instruction sets from the text of /proc/cpuinfo (x86 calls them flags, ARM features)."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip().lower(), value.strip())
    # ARM kernels report no model, only the numbers of implementer and part.
    arm = " ".join(f"{key} {fields[key]}" for key in ("cpu implementer", "cpu part") if key in fields)
    model = fields.get("model name") or arm or UNKNOWN
    flags = fields.get("flags") or fields.get("features")
    if flags is None:
        return model, None
    names = _X86 if "flags" in fields else _ARM
    present = set(flags.split())
    return model, tuple(ours for theirs, ours in names.items() if theirs in present)


def read_sysctl(text: str) -> tuple[str, tuple[str, ...] | None]:
    """Parse model and instruction sets from the output of ``sysctl -a`` on macOS."""
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    if not fields.get("machdep.cpu.brand_string"):
        return UNKNOWN, None
    names = tuple(dict.fromkeys(ours for theirs, ours in _MACOS.items() if fields.get(theirs) == "1"))
    return fields["machdep.cpu.brand_string"], names


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
