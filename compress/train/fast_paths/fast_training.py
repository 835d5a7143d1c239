"""What makes a training step fast on the device it runs on, put around a whole training and taken away again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel

from compress.train.fast_paths.bf16_weights import WorkingCopy
from compress.train.fast_paths.cpu_bf16_attention import quick_attention
from compress.train.fast_paths.fast_dropout import quick_dropout
from compress.train.fast_paths.malloc_tuning import kept_memory
from compress.train.fast_paths.sparse_embeddings import WordVectors
from compress.train.fast_paths.torch_compile import compiled


@contextmanager
def at_speed(
    model: PreTrainedModel,
    teachers: Sequence[PreTrainedModel],
    words: WordVectors | None,
    precision: str,
    device: torch.device,
    compiles: bool = False,
) -> Iterator[None]:
    """Within the block ``model`` trains, and ``teachers`` run in the training's precision.

    Their fp32 weights come back afterwards.
    """
    with ExitStack() as stack:
        if device.type == "cpu":
            stack.enter_context(kept_memory())
            stack.enter_context(quick_dropout(model))
            for each in (model, *teachers) if precision == "bf16" else ():
                stack.enter_context(quick_attention(each))
        if words is not None:
            stack.enter_context(words.sparse())
        if precision == "bf16":
            for teacher in teachers:
                nn.Module.to(teacher, device)
                copy = WorkingCopy(teacher)
                copy.refresh()
                stack.enter_context(copy.running())
        if compiles:
            stack.enter_context(compiled((model, *teachers)))
        yield
