"""Attention for CPUs, in bf16 or with dropout: two matrix products with a softmax between them.

torch's fused attention is written for GPUs and for CPUs with matrix tiles (AMX); in bf16 on others its products run at
a fraction of the rate of ordinary ones, and with dropout it falls back to many separate passes, which draw from a
generator that all threads share. This one processes a few rows at a time, so that the scores between its two products
stay in the CPU cache.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from compress.losses.tensor_ops.token_maps import VECTOR_WIDTH, softmax
from compress.train.fast_paths.fast_dropout import keep_mask

NAME = "compress-products"
"""The name under which it is registered with transformers."""

SCORES_PER_CHUNK = 1 << 20
"""Attention scores per chunk: 4 MB of fp32."""

MAX_STORED_SCORES = 1 << 24
"""Scores of one layer above which training without dropout uses torch's attention, which stores no maps."""

MASKED_SCORE = torch.finfo(torch.float32).min


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, dropout: float) -> Tensor:
    """Return ``dropout(softmax(scale Q K' + mask)) V``; the softmax in fp32.

    Args:
        query: (rows, heads, tokens, head size), in bf16 or fp32.
        key: of the same shape.
        value: of the same shape.
        mask: broadcasts to (rows, heads, tokens, tokens): false where attention is masked, or numbers to add.
        scale: usually one over the root of the head size.
        dropout: the probability of dropping an attention weight.
    """
    if mask is not None:
        bias = torch.zeros(mask.shape).masked_fill_(~mask, MASKED_SCORE) if mask.dtype == torch.bool else mask.float()
        mask = bias.expand(len(query), *mask.shape[1:])
    output: Tensor = _Attention.apply(query, key, value, mask, scale, dropout)  # type: ignore[no-untyped-call]
    return output


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, dropout: float
    ) -> Tensor:
        needs_gradient = any(ctx.needs_input_grad[:3])
        rows, heads, tokens, _ = query.shape
        maps = query.new_empty((rows, heads, tokens, key.shape[2])) if needs_gradient else None
        keep = keep_mask(query.new_empty(()).expand(rows, heads, tokens, key.shape[2]), dropout) if dropout else None
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        for chunk in _chunks(query, key):
            weights = _attention_map(query[chunk], key[chunk], None if mask is None else mask[chunk], scale)
            if maps is not None:
                maps[chunk] = weights
            output[chunk] = (weights if keep is None else weights * keep[chunk]) @ value[chunk]
        ctx.save_for_backward(query, key, value, maps, keep)
        ctx.scale = scale
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, maps, keep = ctx.saved_tensors
        gradients = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (query, key, value)]
        for chunk in _chunks(query, key):
            weights, onto = maps[chunk], gradient[chunk].contiguous()
            dropped = weights if keep is None else weights * keep[chunk]
            gradients[2][chunk] = dropped.transpose(-1, -2) @ onto
            back = onto @ value[chunk].contiguous().transpose(-1, -2)
            if keep is not None:
                back *= keep[chunk]
            scores = softmax_backward(back.float(), weights.float()).mul_(ctx.scale).to(query.dtype)
            gradients[0][chunk] = scores @ key[chunk]
            gradients[1][chunk] = scores.transpose(-1, -2) @ query[chunk]
        return (*gradients, None, None, None)


def softmax_backward(gradient: Tensor, probabilities: Tensor) -> Tensor:
    """Return the gradient of the scores from that of their softmax; both in the same precision."""
    if probabilities.shape[-1] >= VECTOR_WIDTH or probabilities.device.type != "cpu":
        return torch._softmax_backward_data(gradient, probabilities, -1, probabilities.dtype)
    weighted = gradient * probabilities
    return weighted.sub_(probabilities * weighted.sum(dim=-1, keepdim=True))


def _attention_map(query: Tensor, key: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    scores = (query @ key.transpose(-1, -2)).float().mul_(scale)
    if mask is not None:
        scores += mask
    return softmax(scores).to(query.dtype)


def _chunks(query: Tensor, key: Tensor) -> list[slice]:
    """Return slices of rows whose scores fit the CPU cache."""
    rows, heads, tokens, _ = query.shape
    size = max(1, SCORES_PER_CHUNK // (heads * tokens * key.shape[2]))
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
    """The attention function that transformers calls; cases it does not cover go to torch's attention."""
    scores = query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2]
    too_large = scores > MAX_STORED_SCORES and not dropout and query.requires_grad
    causal = getattr(module, "is_causal", True) if others.get("is_causal") is None else others["is_causal"]
    one_key_per_query = query.shape[:2] == key.shape[:2] and query.shape[-1] == value.shape[-1]
    faster = query.dtype == torch.bfloat16 or dropout > 0
    supported = faster and one_key_per_query and others.get("position_bias") is None
    if too_large or causal or not supported:
        result: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
        return result
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attention(query, key, value, attention_mask, scale, dropout).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, _forward)
AttentionMaskInterface.register(NAME, sdpa_mask)


def replaces_attention(model: PreTrainedModel) -> bool:
    """Return whether `cpu_attention` changes the attention of this model."""
    return bool(model.config._attn_implementation == "sdpa")


@contextmanager
def cpu_attention(model: PreTrainedModel) -> Iterator[None]:
    """Use this attention within the block for a model whose attention implementation is `sdpa`."""
    before = model.config._attn_implementation
    if replaces_attention(model):
        model.config._attn_implementation = NAME
    try:
        yield
    finally:
        model.config._attn_implementation = before
