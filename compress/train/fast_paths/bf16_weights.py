"""The bf16 copies of the weights that a model runs on, while its fp32 weights learn.

Micikevicius et al., "Mixed Precision Training", 2018 (arXiv:1710.03740), section 3.1. Autocast casts every weight each
time it is used, and adds and normalises in fp32; here each weight is cast once in an update, and all that a layer does
is in bf16. What needs more is in fp32 still: the weights that the optimizer moves, its memory, the sum of gradients,
the embeddings (which are looked up and not multiplied), the softmax of attention, and the losses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.models.encoder_parts import base_of

Gradients = list[Tensor | None]


class Bf16Weights:
    """Lets a model, and what is trained beside it, run in bf16 for a while.

    Outside of `running` the parameters are what they always are, in fp32 and with fp32 gradients: whoever evaluates,
    saves or moves them needs to know nothing of this.
    """

    def __init__(self, model: PreTrainedModel, extra: Sequence[nn.Module] = ()) -> None:
        embeddings = base_of(model).get_submodule("embeddings")
        apart = {id(parameter) for parameter in embeddings.parameters()}
        every = [parameter for module in (model, *extra) for parameter in module.parameters()]
        self._parameters = [parameter for parameter in every if id(parameter) not in apart]
        self._copies = [torch.empty_like(parameter, dtype=torch.bfloat16) for parameter in self._parameters]
        self._embeddings = embeddings

    def refresh(self) -> None:
        """Copy the weights as they are now."""
        with torch.no_grad():
            torch._foreach_copy_(self._copies, [parameter.data for parameter in self._parameters])

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within the block the model runs on the copies; afterwards the gradients are added to the fp32 ones."""
        full = [parameter.data for parameter in self._parameters]
        before = [parameter.grad for parameter in self._parameters]
        self._put(self._copies, [None] * len(full))
        hook = self._embeddings.register_forward_hook(_in_bf16)
        try:
            yield
        finally:
            hook.remove()
            found = [parameter.grad for parameter in self._parameters]
            self._put(full, before)
            _add(self._parameters, found)

    def _put(self, tensors: Sequence[Tensor], gradients: Gradients) -> None:
        for parameter, tensor, gradient in zip(self._parameters, tensors, gradients, strict=True):
            parameter.grad = None  # a gradient must be of its parameter's type
            parameter.data = tensor
            parameter.grad = gradient


def _in_bf16(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output.to(torch.bfloat16)


def _add(parameters: Sequence[nn.Parameter], gradients: Gradients) -> None:
    """Add gradients in bf16 to those in fp32, all together: on a GPU each call costs a launch."""
    given = [(parameter, new) for parameter, new in zip(parameters, gradients, strict=True) if new is not None]
    begun = [(parameter, new) for parameter, new in given if parameter.grad is None]
    old = [(parameter.grad, new) for parameter, new in given if parameter.grad is not None]
    if old:
        torch._foreach_add_([gradient for gradient, _ in old], [new for _, new in old])
    if begun:
        first = [torch.empty_like(parameter) for parameter, _ in begun]
        torch._foreach_copy_(first, [new for _, new in begun])
        for (parameter, _), gradient in zip(begun, first, strict=True):
            parameter.grad = gradient
