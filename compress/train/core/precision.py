"""Which precision a training runs in."""

from __future__ import annotations

import torch

from compress.environment import describe_cpu


def choose_precision(asked: str, device: torch.device) -> str:
    """`auto` is bf16 where the device multiplies it in one instruction."""
    if asked != "auto":
        return asked
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if describe_cpu().has_bf16 else "fp32"
