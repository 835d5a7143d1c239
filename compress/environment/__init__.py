"""Describes this machine: processor, instructions, cores, memory, disk, libraries, devices, and the hub it reaches.

Nothing heavy is imported: versions come from package metadata, and torch is queried for devices only on request. What
cannot be determined is reported as unknown, never guessed.
"""

import hashlib
import importlib.util
import os
import platform
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from compress.environment.cpu import Cpu, CpuState, describe_cpu, describe_cpu_state
from compress.environment.libraries import LIBRARIES, require, unmet_minimum, versions
from compress.environment.os_probe import command_output, core_quota, memory_limit, usable_cores


@dataclass(frozen=True)
class Gpu:
    """A CUDA device."""

    name: str
    memory: int


def cuda_devices() -> tuple[Gpu, ...]:
    """List CUDA devices as torch sees them, or as the driver does where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
        return read_nvidia_smi(command_output(query))
    import torch

    if not torch.cuda.is_available():
        return ()
    properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return tuple(Gpu(device.name, int(device.total_memory)) for device in properties)


def read_nvidia_smi(text: str) -> tuple[Gpu, ...]:
    """Parse the csv output of nvidia-smi, which has memory in MiB."""
    rows = (line.rpartition(",") for line in text.splitlines() if "," in line)
    return tuple(Gpu(name.strip(), int(memory) * 2**20) for name, _, memory in rows if memory.strip().isdigit())


def driver_version() -> str | None:
    """Return the version of the NVIDIA driver."""
    lines = command_output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).splitlines()
    return lines[0].strip() if lines and re.fullmatch(r"[\d.]+", lines[0].strip()) else None


def cuda_version() -> str | None:
    """Return the CUDA version that torch was built for."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch.version.cuda


HUB = "https://huggingface.co"


def hub_state(timeout: float = 3.0) -> str:
    """Return ``reachable``, or why the model hub is not, after at most ``timeout`` seconds."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return "switched off by HF_HUB_OFFLINE"
    address = os.environ.get("HF_ENDPOINT", HUB)
    replies: list[str] = []
    # The limit of a request does not include looking up the address: without a network that takes seconds.
    probe = Thread(target=lambda: replies.append(_request(address, timeout)), daemon=True)
    probe.start()
    probe.join(timeout)
    return replies[0] if replies else f"not reachable (no reply within {timeout:g} s)"


def _request(address: str, timeout: float) -> str:
    import urllib.error
    import urllib.request

    try:
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=timeout).close()
    except urllib.error.HTTPError:
        return "reachable"  # any reply is a reply, even "not allowed"
    except (OSError, ValueError) as error:
        return f"not reachable ({getattr(error, 'reason', error)})"
    return "reachable"


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
