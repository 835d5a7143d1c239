"""The precision in which a training runs."""

from __future__ import annotations

import torch

from compress.environment import describe_cpu


def choose_precision(requested: str, device: torch.device) -> str:
    """Return `fp32` or `bf16`; `auto` is bf16 where the device has instructions for it."""
    if requested != "auto":
        return requested
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if describe_cpu().has_bf16 else "fp32"
