"""The machine of a measurement: hardware, settings and load, as far as the system reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime

from compress.environment import CpuState, core_quota, cuda_version, describe, driver_version
from compress.measure.result_base import ResultModel


class MachineSnapshot(CpuState, ResultModel):
    """The machine during a measurement; None where the system does not report it. No host names, no addresses."""

    looked_at: str
    """When, in UTC."""
    fingerprint: str
    """Equal on machines whose CPU timings may be compared."""
    system: str
    python: str
    cpu: str
    machine: str
    """x86_64, aarch64 …"""
    instructions: tuple[str, ...] | None = None
    cores: int
    """What this process may use."""
    cores_of_machine: int
    core_quota: float | None = None
    """Cores' worth of time that the container grants; None where it does not limit them."""
    memory: int
    """Bytes that this process may use."""
    memory_of_machine: int | None = None
    accelerator: str | None = None
    accelerator_memory: int | None = None
    driver: str | None = None
    cuda: str | None = None
    """The CUDA version that torch was built for, or else the driver's newest."""
    versions: Mapping[str, str] = {}


def snapshot_machine(device: bool = False) -> MachineSnapshot:
    """Return a snapshot of this machine.

    Args:
        device: include its accelerator, which imports torch where it is installed (over a second).
    """
    import psutil

    info = describe(devices=device)
    accelerator = info.gpus[0] if info.gpus else None
    return MachineSnapshot(
        looked_at=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprint=info.fingerprint,
        system=info.system,
        python=info.python,
        core_quota=core_quota(),
        memory=info.memory,
        memory_of_machine=int(psutil.virtual_memory().total),
        **(asdict(info.cpu) | {"cpu": info.cpu.model} | info.condition.model_dump()),
        accelerator=accelerator.name if accelerator else None,
        accelerator_memory=accelerator.memory if accelerator else None,
        driver=driver_version() if accelerator else None,
        cuda=cuda_version() if accelerator else None,
        versions=info.versions,
    )
