"""Attention maps: the student looks where the teacher looks.

Wang et al., "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression", 2020 (arXiv:2002.10957),
equation 7. The maps are computed from Q and K, so that models keep their fast attention, which returns no maps.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from compress.losses.groups import FAR
from compress.losses.masking import mean_over_tokens
from compress.recipe.losses import Attention

TINY = torch.finfo(torch.float32).tiny


def attention(
    student: Mapping[str, Tensor], teacher: Mapping[str, Tensor], batch: Mapping[str, Tensor], settings: Attention
) -> Tensor:
    """KL from the teacher's attention map to the student's, over heads and real query positions.

    With equal numbers of heads each head follows its own; else (a pruned student) the heads' average follows the
    teacher's average. Padding is neither looked from nor looked at. It costs (examples, heads, tokens, tokens) numbers
    twice.

    Args:
        student: `query` and `key` (examples, heads, tokens, head size).
        teacher: the same, without gradient; heads and head size may differ.
        batch: `attention_mask` (examples, tokens), one for real tokens; `group` where rows are several examples.
    """
    mask = batch["attention_mask"]
    ours, theirs = _log_map(student, mask), _log_map(teacher, mask)
    if ours.shape[1] != theirs.shape[1]:
        ours, theirs = _mean_of_heads(ours), _mean_of_heads(theirs)
    divergence = (theirs.exp() * (theirs - ours)).sum(dim=-1).mean(dim=1)
    return mean_over_tokens(divergence, batch)


def _log_map(states: Mapping[str, Tensor], mask: Tensor) -> Tensor:
    """Log of the attention map (examples, heads, queries, keys)."""
    query, key = states["query"], states["key"]
    scores: Tensor = (query @ key.transpose(-1, -2)).float() * query.shape[-1] ** -0.5
    return scores.masked_fill(mask[:, None, None, :] == 0, FAR).log_softmax(dim=-1)


def _mean_of_heads(log_map: Tensor) -> Tensor:
    return log_map.exp().mean(dim=1, keepdim=True).clamp(min=TINY).log()
