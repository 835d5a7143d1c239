"""The machine of a measurement: hardware, settings and load, as far as the system reports them."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime

from compress.environment import CpuState, core_quota, cuda_version, describe, driver_version
from compress.measure.result_base import ResultModel


class Machine(ResultModel):
    """A machine, without host name or address; None where the system does not report it."""

    cpu: str
    """The processor's name."""
    system: str
    cores: int
    """What this process may use."""
    instructions: tuple[str, ...] | None = None
    """Those that decide the speed of low precision: avx2, avx512_vnni, amx_int8 …"""
    memory: int | None = None
    """Bytes that this process may use."""
    accelerator: str | None = None
    fingerprint: str | None = None
    """Equal on machines whose CPU timings may be compared."""


class MachineSnapshot(CpuState, Machine):
    """The machine during a measurement."""

    looked_at: str
    """When, in UTC."""
    fingerprint: str
    python: str
    machine: str
    """x86_64, aarch64 …"""
    cores_of_machine: int
    core_quota: float | None = None
    """Cores' worth of time that the container grants; None where it does not limit them."""
    memory: int
    memory_of_machine: int | None = None
    accelerator_memory: int | None = None
    driver: str | None = None
    cuda: str | None = None
    """The CUDA version that torch was built for, or else the driver's newest."""
    versions: Mapping[str, str] = {}


def describe_machine(device: bool = False) -> Machine:
    """Return what does not change of this machine; ``device``: with its accelerator, as below."""
    info = describe(devices=device)
    return Machine(
        cpu=info.cpu.model,
        system=info.system,
        cores=info.cpu.cores,
        instructions=info.cpu.instructions,
        memory=info.memory,
        accelerator=info.gpus[0].name if info.gpus else None,
        fingerprint=info.fingerprint,
    )


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
