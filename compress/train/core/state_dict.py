"""The parameters of a module by name, out of it and into it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def weights(module: nn.Module) -> dict[str, Tensor]:
    """The parameters by name, shared ones once."""
    return {name: parameter.detach().contiguous() for name, parameter in module.named_parameters()}


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Set every parameter to the tensor of its name."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(tensors[name])


def strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those whose name starts with the prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
