"""The processor: its model and the instruction sets that affect speed."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from compress.environment.cgroup_limits import usable_cores
from compress.environment.os_probe import UNKNOWN, command_output

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
