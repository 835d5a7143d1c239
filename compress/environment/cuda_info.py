"""CUDA devices and their driver."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass

from compress.environment.os_probe import command_output


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
