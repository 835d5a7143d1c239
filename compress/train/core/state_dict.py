"""Read and write the parameters of a module by name."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def named_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters by name; shared ones once."""
    return {name: parameter.detach().contiguous() for name, parameter in module.named_parameters()}


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors into the parameters of the same name."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(tensors[name])


def strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with the prefix, with the prefix removed."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
