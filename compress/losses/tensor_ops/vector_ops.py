"""Vectors of tokens and texts: norms, normalization, pooling."""

from typing import Literal

import torch
from torch import Tensor

from compress.losses.tensor_ops.row_groups import Tensors


def to_float32(values: Tensor) -> Tensor:
    """Return bf16 and fp16 tensors in float32; wider types unchanged."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def squared_norm(vectors: Tensor) -> Tensor:
    """Return ``|v|²`` of vectors (..., width), at least in float32.

    16-bit vectors are multiplied as they are, without a larger copy, and summed in float32.
    """
    return to_float32((vectors * vectors).sum(dim=-1))


def unit(vectors: Tensor) -> Tensor:
    """Return the vectors scaled to length one; zero vectors stay zero."""
    return torch.nn.functional.normalize(vectors, dim=-1)


def text_vectors(hidden: Tensor, batch: Tensors, pool: Literal["cls", "mean"]) -> Tensor:
    """Return one vector per text (examples, width), at least in float32.

    Args:
        hidden: (examples, tokens, width).
        batch: `attention_mask` (examples, tokens), one for real tokens.
        pool: `cls` takes the first token's vector, `mean` the mean over real tokens.
    """
    if pool == "cls":
        return to_float32(hidden[:, 0])
    mask = batch["attention_mask"]
    with torch.autocast(hidden.device.type, enabled=False):  # autocast would copy all hidden states
        total = to_float32((mask.to(hidden.dtype)[:, None] @ hidden)[:, 0])
    return total / mask.sum(dim=1, keepdim=True).clamp(min=1)
