"""Attention in bf16 on a CPU, as two matrix products with a softmax between them.

torch's fused attention is written for GPUs and for processors with matrix tiles; in bf16 on others its products run at
a small part of the rate of ordinary ones, and with dropout it falls back to many separate passes. This one works on a
few rows at a time, so that the scores between its two products never leave the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from compress.losses.tensor_ops.softmax import softmax, softmax_backward
from compress.train.fast_paths.fast_dropout import keep_mask

NAME = "compress-products"
"""What transformers knows it by."""

SCORES = 1 << 20
"""Scores that are worked on together: 4 MB of fp32."""

MOST = 1 << 24
"""Scores of one layer beyond which training takes torch's attention where it is given no dropout, for it keeps none."""

FAR = torch.finfo(torch.float32).min


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, dropout: float) -> Tensor:
    """``dropout(softmax(scale Q K' + mask)) V``; the softmax in fp32.

    Args:
        query: (rows, heads, tokens, head size), in bf16.
        key: of the same shape.
        value: of the same shape.
        mask: broadcasts to (rows, heads, tokens, tokens): false where nothing is looked at, or numbers to add.
        scale: usually one over the root of the head size.
        dropout: the share of the softmax that is dropped.
    """
    if mask is not None:
        bias = torch.zeros(mask.shape).masked_fill_(~mask, FAR) if mask.dtype == torch.bool else mask.float()
        mask = bias.expand(len(query), *mask.shape[1:])
    found: Tensor = _Products.apply(query, key, value, mask, scale, dropout)  # type: ignore[no-untyped-call]
    return found


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, dropout: float
    ) -> Tensor:
        remember = any(ctx.needs_input_grad[:3])
        rows, heads, tokens, _ = query.shape
        maps = query.new_empty((rows, heads, tokens, key.shape[2])) if remember else None
        kept = keep_mask(query.new_empty(()).expand(rows, heads, tokens, key.shape[2]), dropout) if dropout else None
        found = torch.empty_like(query, memory_format=torch.contiguous_format)
        for part in _parts(query, key):
            weights = _map(query[part], key[part], None if mask is None else mask[part], scale)
            if maps is not None:
                maps[part] = weights
            found[part] = (weights if kept is None else weights * kept[part]) @ value[part]
        ctx.save_for_backward(query, key, value, maps, kept)
        ctx.scale = scale
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, maps, kept = ctx.saved_tensors
        found = [torch.empty_like(each, memory_format=torch.contiguous_format) for each in (query, key, value)]
        for part in _parts(query, key):
            weights, onto = maps[part], gradient[part].contiguous()
            seen = weights if kept is None else weights * kept[part]
            found[2][part] = seen.transpose(-1, -2) @ onto
            back = onto @ value[part].contiguous().transpose(-1, -2)
            if kept is not None:
                back *= kept[part]
            scores = softmax_backward(back.float(), weights.float()).mul_(ctx.scale).to(query.dtype)
            found[0][part] = scores @ key[part]
            found[1][part] = scores.transpose(-1, -2) @ query[part]
        return (*found, None, None, None)


def _map(query: Tensor, key: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    scores = (query @ key.transpose(-1, -2)).float().mul_(scale)
    if mask is not None:
        scores += mask
    return softmax(scores).to(query.dtype)


def _parts(query: Tensor, key: Tensor) -> list[slice]:
    """Slices of rows of which the scores stay in the cache."""
    rows, heads, tokens, _ = query.shape
    size = max(1, SCORES // (heads * tokens * key.shape[2]))
    return [slice(start, start + size) for start in range(0, rows, size)]


def _forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """What transformers calls, on a CPU; what is not plain or in another precision goes to torch's own attention."""
    scores = query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2]
    heavy = scores > MOST and not dropout and query.requires_grad
    if heavy or not _is_plain(module, query, key, value, others):
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
        return found
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attention(query, key, value, attention_mask, scale, dropout).transpose(1, 2).contiguous(), None


def _is_plain(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, others: Mapping[str, Any]) -> bool:
    """Whether it is in bf16, each head with its own keys, all tokens seen from everywhere."""
    causal = others.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    alike = query.shape[:2] == key.shape[:2] and query.shape[-1] == value.shape[-1]
    small = query.dtype == torch.bfloat16
    return small and alike and not causal and others.get("position_bias") is None


AttentionInterface.register(NAME, _forward)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextmanager
def cpu_bf16_attention(model: PreTrainedModel) -> Iterator[None]:
    """Within the block a model on a CPU attends by products, where it would ask torch for fused attention."""
    before = model.config._attn_implementation
    if before == "sdpa":
        model.config._attn_implementation = NAME
    try:
        yield
    finally:
        model.config._attn_implementation = before
