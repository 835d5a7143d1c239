"""Chooses the precision of a training, and enables all fast paths that apply to a training's device and precision."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.environment import describe_cpu
from compress.train.fast_paths.bf16_weights import Bf16Weights
from compress.train.fast_paths.cpu_attention import cpu_attention
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


BF16_GAIN = 1.2
"""How many times faster products in bf16 must be on a CPU: some have the instructions and multiply fp32 faster."""


def choose_precision(requested: str, device: torch.device) -> str:
    """Return `fp32` or `bf16`; `auto` is bf16 where the device multiplies it faster (timed on a CPU)."""
    if requested != "auto":
        return requested
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if describe_cpu().has_bf16 and bf16_gain() >= BF16_GAIN else "fp32"


@lru_cache(maxsize=1)
def bf16_gain() -> float:
    """Return how many times faster a product of a layer's size is in bf16 than in fp32; takes about 0.1 s."""
    factors = torch.ones(512, 384), torch.ones(384, 1536)
    bf16 = factors[0].bfloat16(), factors[1].bfloat16()
    turns = [(_seconds(*factors), _seconds(*bf16)) for _ in range(10)]
    return min(fp32 for fp32, _ in turns) / min(bf16 for _, bf16 in turns)


def _seconds(left: Tensor, right: Tensor) -> float:
    started = time.perf_counter()
    torch.mm(left, right)
    return time.perf_counter() - started
