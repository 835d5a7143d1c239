"""Describes the device a predictor runs on, for all runtimes."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from compress.environment import describe_cpu
from compress.runtime.predictor import Placement


def describe_device(placement: Placement, device_name: str | None = None) -> dict[str, Any]:
    """Return the part of `Predictor.describe` that does not depend on the runtime.

    Args:
        placement: where it runs.
        device_name: the runtime's name of a CUDA device; by default the driver's.
    """
    cpu = describe_cpu()
    name = cpu.model if placement.device == "cpu" else device_name or cuda_name()
    return {
        "device": placement.device,
        "device_name": name,
        "threads": placement.threads,
        "instructions": list(cpu.instructions) if cpu.instructions is not None else None,
    }


def cuda_name() -> str | None:
    """Return the name of the CUDA device, without torch; None where the driver reports none or devices differ."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if visible:
        command.append(f"--id={visible.partition(',')[0]}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    names = {line.strip() for line in done.stdout.splitlines() if line.strip()}
    return names.pop() if len(names) == 1 else None
