"""bf16 copies of the weights for forward and backward passes; the fp32 weights are updated.

Micikevicius et al., "Mixed Precision Training", 2018 (arXiv:1710.03740), section 3.1. Autocast casts every weight each
time it is used, and adds and normalizes in fp32; here each weight is cast once per update, and layers run entirely in
bf16. Still in fp32: the weights that the optimizer updates, its state, the accumulated gradients, the embeddings (which
are looked up, not multiplied), the softmax of attention, and the losses.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.models.encoder_parts import base_of

Gradients = list[Tensor | None]


class Bf16Weights:
    """Runs a model, and modules trained with it, in bf16 within `running`.

    Outside of `running` the parameters are fp32 with fp32 gradients: evaluating, saving and moving them need no
    special care.
    """

    def __init__(self, model: PreTrainedModel, extra: Sequence[nn.Module] = ()) -> None:
        embeddings = base_of(model).get_submodule("embeddings")
        excluded = {id(parameter) for parameter in embeddings.parameters()}
        parameters = [parameter for module in (model, *extra) for parameter in module.parameters()]
        self._parameters = [parameter for parameter in parameters if id(parameter) not in excluded]
        self._copies = [torch.empty_like(parameter, dtype=torch.bfloat16) for parameter in self._parameters]
        self._embeddings = embeddings

    def refresh(self, part: slice = slice(None)) -> None:
        """Copy the current weights, or part of them."""
        with torch.no_grad():
            torch._foreach_copy_(self._copies[part], [parameter.data for parameter in self._parameters[part]])

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the model on the copies within the block, then add the gradients to the fp32 ones."""
        full = [parameter.data for parameter in self._parameters]
        before = [parameter.grad for parameter in self._parameters]
        self._set(self._copies, [None] * len(full))
        hook = self._embeddings.register_forward_hook(_in_bf16)
        try:
            yield
        finally:
            hook.remove()
            gradients = [parameter.grad for parameter in self._parameters]
            self._set(full, before)
            add_gradients(self._parameters, gradients)

    def _set(self, tensors: Sequence[Tensor], gradients: Gradients) -> None:
        for parameter, tensor, gradient in zip(self._parameters, tensors, gradients, strict=True):
            parameter.grad = None  # a gradient must have its parameter's type
            parameter.data = tensor
            parameter.grad = gradient


def _in_bf16(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output.to(torch.bfloat16)


def add_gradients(parameters: Sequence[nn.Parameter], gradients: Gradients) -> None:
    """Add gradients of one type to those of parameters, in one call: on a GPU each call costs a kernel launch."""
    pairs = [(parameter, new) for parameter, new in zip(parameters, gradients, strict=True) if new is not None]
    without = [(parameter, new) for parameter, new in pairs if parameter.grad is None]
    present = [(parameter.grad, new) for parameter, new in pairs if parameter.grad is not None]
    if present:
        torch._foreach_add_([gradient for gradient, _ in present], [new for _, new in present])
    for parameter, new in without:
        parameter.grad = new if new.dtype == parameter.dtype else torch.empty_like(parameter)
    # Copying a gradient to itself does nothing.
    copied = [(parameter.grad, new) for parameter, new in without if parameter.grad is not None]
    if copied:
        torch._foreach_copy_([gradient for gradient, _ in copied], [new for _, new in copied])
