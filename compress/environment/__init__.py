"""Describes this machine: processor, instructions, cores, memory, disk, libraries, devices.

Nothing heavy is imported: versions come from package metadata, and torch is queried for devices only on request. What
cannot be determined is reported as unknown, never guessed.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from compress.environment.cgroup_limits import core_quota, memory_limit, usable_cores
from compress.environment.cpu import Cpu, describe_cpu
from compress.environment.cpu_state import CpuState, describe_cpu_state
from compress.environment.cuda_info import Gpu, cuda_devices, cuda_version, driver_version
from compress.environment.hub_status import hub_state
from compress.environment.libraries import LIBRARIES, require, unmet_minimum, versions

__all__ = [
    "LIBRARIES",
    "CpuState",
    "core_quota",
    "cuda_devices",
    "cuda_version",
    "describe_cpu",
    "describe_cpu_state",
    "driver_version",
    "memory_limit",
    "require",
    "unmet_minimum",
    "usable_cores",
    "versions",
]


@dataclass(frozen=True)
class Environment:
    """This machine and what is installed on it."""

    system: str
    python: str
    cpu: Cpu
    memory: int
    """Bytes that this process may use."""
    disk_free: int
    versions: dict[str, str]
    gpus: tuple[Gpu, ...] | None = None
    """None where it was not requested."""
    hub: str | None = None
    """``reachable`` or the reason why not; None where it was not requested."""
    condition: CpuState = field(default_factory=CpuState)

    @property
    def fingerprint(self) -> str:
        """A digest that is equal on machines whose CPU timings can be compared: hardware only, no names or versions."""
        cpu = self.cpu
        parts = [cpu.model, cpu.machine, ",".join(cpu.instructions or ()), str(cpu.cores)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def describe(folder: Path | str = ".", *, devices: bool = False, hub: bool = False) -> Environment:
    """Describe this machine.

    Args:
        folder: on the disk whose free space is reported.
        devices: query CUDA devices too, which imports torch where it is installed (over a second).
        hub: try to reach the model hub too (three seconds at most).
    """
    folder = Path(folder).resolve()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return Environment(
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        cpu=describe_cpu(),
        memory=memory_limit(),
        disk_free=shutil.disk_usage(existing).free,
        versions=versions(LIBRARIES),
        gpus=cuda_devices() if devices else None,
        hub=hub_state() if hub else None,
        condition=describe_cpu_state(),
    )
