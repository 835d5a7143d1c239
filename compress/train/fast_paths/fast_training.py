"""Enables all fast paths that apply to a training's device and precision."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel

from compress.train.fast_paths.bf16_weights import Bf16Weights
from compress.train.fast_paths.cpu_attention import cpu_attention
from compress.train.fast_paths.fast_dropout import fast_dropout
from compress.train.fast_paths.malloc_tuning import keep_freed_memory
from compress.train.fast_paths.sparse_embeddings import SparseEmbeddings
from compress.train.fast_paths.torch_compile import MULTIPLE, compile_layers

BF16_MULTIPLE = 8
"""Widths are multiples of it in bf16 on a CPU, where oneDNN compiles every shape of a product; elsewhere a new width
costs nothing."""


def width_multiple(precision: str, device: torch.device, compiles: bool = False) -> int:
    """Return the number whose multiples the widths of batches are."""
    if compiles:
        return MULTIPLE
    return BF16_MULTIPLE if precision == "bf16" and device.type == "cpu" else 1


@contextmanager
def fast_training(
    model: PreTrainedModel,
    teachers: Sequence[PreTrainedModel],
    words: SparseEmbeddings | None,
    precision: str,
    device: torch.device,
    compiles: bool = False,
    shares: int = 1,
) -> Iterator[None]:
    """Speed up training of ``model`` within the block; ``teachers`` run in the training's precision.

    Their fp32 weights are restored afterwards. With several ``shares``, each draws its dropout from its own generator.
    """
    with ExitStack() as stack:
        if device.type == "cpu":
            stack.enter_context(keep_freed_memory())
            stack.enter_context(fast_dropout(model))
            for network in (model, *teachers) if precision == "bf16" else (model,) if shares > 1 else ():
                stack.enter_context(cpu_attention(network))
        if words is not None:
            stack.enter_context(words.sparse())
        if precision == "bf16":
            for teacher in teachers:
                nn.Module.to(teacher, device)
                copy = Bf16Weights(teacher)
                copy.refresh()
                stack.enter_context(copy.running())
        if compiles:
            stack.enter_context(compile_layers((model, *teachers)))
        yield
