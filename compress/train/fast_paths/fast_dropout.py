"""Fast dropout for CPUs, where torch draws random numbers one at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

_GENERATOR: ContextVar[torch.Generator | None] = ContextVar("generator", default=None)


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Draw the masks of this thread from a generator within the block, instead of torch's, which threads share."""
    token = _GENERATOR.set(generator)
    try:
        yield
    finally:
        _GENERATOR.reset(token)


def keep_mask(like: Tensor, share: float) -> Tensor:
    """Return a bf16 mask in the shape of ``like``: zero for a ``share`` of elements, else ``1 / (1 - share)``.

    One 64-bit random number decides four elements, in place: each of its 16-bit parts is compared with a threshold, and
    the result, 0 or 1, is multiplied by the bits of the factor. The factor is rounded to bf16 and the threshold follows
    from it, so that the mean is one: a share of 0.1 becomes 0.0986.
    """
    factor = torch.tensor(1 / (1 - share), dtype=torch.bfloat16)
    dropped = 1 - 1 / factor.item()
    count = like.numel()
    random = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None, generator=_GENERATOR.get())
    bits = random.view(torch.int16)[:count]
    bits.ge_(round(dropped * 2**16) - 2**15).mul_(factor.view(torch.int16))
    return bits.view(torch.bfloat16).view(like.shape)


class FastDropout(nn.Dropout):
    """`nn.Dropout` that uses `keep_mask` on a CPU."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop and scale elements during training; return the input unchanged otherwise."""
        if not (self.training and 0.0 < self.p < 1.0 and input.device.type == "cpu"):
            return super().forward(input)
        dropped: Tensor = _Multiply.apply(input, keep_mask(input, self.p))  # type: ignore[no-untyped-call]
        return dropped


class _Multiply(torch.autograd.Function):
    """Multiplication by a mask without gradient, which is stored in its own small type."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return values * mask.to(values.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return gradient * mask.to(gradient.dtype), None


@contextmanager
def fast_dropout(model: nn.Module) -> Iterator[None]:
    """Replace every dropout of the model by `FastDropout` within the block."""
    modules = [module for module in model.modules() if type(module) is nn.Dropout]
    for module in modules:
        module.__class__ = FastDropout
    try:
        yield
    finally:
        for module in modules:
            module.__class__ = nn.Dropout
