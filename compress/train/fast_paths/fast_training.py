"""Chooses the precision of a training, and enables all fast paths that apply to a training's device and precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel

from compress.environment import describe_cpu
from compress.train.fast_paths.bf16_weights import Bf16Weights
from compress.train.fast_paths.cpu_bf16_attention import cpu_bf16_attention
from compress.train.fast_paths.fast_dropout import fast_dropout
from compress.train.fast_paths.malloc_tuning import keep_freed_memory
from compress.train.fast_paths.sparse_embeddings import SparseEmbeddings
from compress.train.fast_paths.torch_compile import compile_layers


@contextmanager
def fast_training(
    model: PreTrainedModel,
    teachers: Sequence[PreTrainedModel],
    words: SparseEmbeddings | None,
    precision: str,
    device: torch.device,
    compiles: bool = False,
) -> Iterator[None]:
    """Speed up training of ``model`` within the block; ``teachers`` run in the training's precision.

    Their fp32 weights are restored afterwards.
    """
    with ExitStack() as stack:
        if device.type == "cpu":
            stack.enter_context(keep_freed_memory())
            stack.enter_context(fast_dropout(model))
            for network in (model, *teachers) if precision == "bf16" else ():
                stack.enter_context(cpu_bf16_attention(network))
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


def choose_precision(requested: str, device: torch.device) -> str:
    """Return `fp32` or `bf16`; `auto` is bf16 where the device has instructions for it."""
    if requested != "auto":
        return requested
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if describe_cpu().has_bf16 else "fp32"
