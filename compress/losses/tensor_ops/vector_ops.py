"""Vectors of tokens and texts: how far apart, how long, and one for each text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

HALVES = (torch.bfloat16, torch.float16)


def to_float32(values: Tensor) -> Tensor:
    """In single precision at least: halves are to_float32, the others stay as they are."""
    return values.float() if values.dtype in HALVES else values


def squared_norm(vectors: Tensor) -> Tensor:
    """``|v|²`` of vectors (..., width), in single precision at least.

    Halves are multiplied as they are, without a larger copy of them all, and added up in single precision.
    """
    return to_float32((vectors * vectors).sum(dim=-1))


def unit(vectors: Tensor) -> Tensor:
    """The same directions at length one; a vector of zeros stays one."""
    return torch.nn.functional.normalize(vectors, dim=-1)


def check_same_shape(ours: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
    """Both, the teacher's cut off from its gradient; refused where their shapes differ."""
    if ours.shape != theirs.shape:
        raise ValueError(f"hidden states {tuple(ours.shape)} and {tuple(theirs.shape)} differ: project the student's")
    return ours, theirs.detach()


def text_vectors(hidden: Tensor, batch: Mapping[str, Tensor], pool: Literal["cls", "mean"]) -> Tensor:
    """One vector for each text (examples, width), in single precision at least.

    Args:
        hidden: (examples, tokens, width).
        batch: `attention_mask` (examples, tokens), one for real tokens.
        pool: `cls` takes the first token's vector, `mean` the mean of all real tokens.
    """
    if pool == "cls":
        return to_float32(hidden[:, 0])
    mask = batch["attention_mask"]
    with torch.autocast(hidden.device.type, enabled=False):  # it would copy all of the hidden states
        total = to_float32((mask.to(hidden.dtype)[:, None] @ hidden)[:, 0])
    return total / mask.sum(dim=1, keepdim=True).clamp(min=1)
