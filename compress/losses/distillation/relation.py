"""Relation: similarities among the tokens' queries, keys and values match the teacher's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from compress.errors import UsageError
from compress.losses.tensor_ops.row_groups import Tensors
from compress.losses.tensor_ops.token_maps import kl_distance, token_map_loss

if TYPE_CHECKING:
    from compress.recipe.loss_schema import Relation


def relation(student: Tensors, teacher: Tensors, batch: Tensors, settings: Relation) -> Tensor:
    """Return ``KL(softmax(t) | softmax(s))`` of self-attention relations, as a mean over heads, tokens and rows.

    The relation of queries, say, is ``a·b / √size`` of each token's query with all others'. Vectors of all heads are
    concatenated and split into relation heads, whose number is independent of the number of attention heads: so
    student and teacher may differ in heads and in width.

    `[qk, vv]` is Wang et al., "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression", 2020
    (arXiv:2002.10957); `[qq, kk, vv]` Wang et al., "MiniLMv2: Multi-Head Self-Attention Relation
    Distillation for Compressing Pretrained Transformers", 2021 (arXiv:2012.15828). Both sum over pairs;
    here it is the mean, so that the weight does not depend on their number.

    Maps are computed in chunks (`token_maps.py`), so memory does not grow with heads times tokens squared.

    Args:
        student: those of `query`, `key` and `value` that the pairs name (examples, heads, tokens, head size).
        teacher: the same, with any number of heads and any head size; it gets no gradient.
        batch: `attention_mask` (examples, tokens), one for real tokens; `group` where rows are several examples.
        settings: `pairs`; `heads`: more heads are smaller and capture finer relations, at a cost proportional to their
            number. Default: the teacher's number, or the next smaller one that divides both models' widths.
    """
    side = settings.sides[0]
    widths = [tensor.shape[1] * tensor.shape[3] for tensor in (student[side], teacher[side])]
    heads = relation_heads(widths[0], widths[1], teacher[side].shape[1], settings.heads)
    ours = {name[0]: _split_heads(student[name], heads) for name in settings.sides}
    theirs = {name[0]: _split_heads(teacher[name].detach(), heads) for name in settings.sides}
    losses = [token_map_loss((ours[a], ours[b]), (theirs[a], theirs[b]), batch, kl_distance) for a, b in settings.pairs]
    return torch.stack(losses).mean()


def relation_heads(student: int, teacher: int, default: int, requested: int | None) -> int:
    """Return the number of relation heads: the requested one, or the largest divisor up to the default.

    Args:
        student: the width of the student's queries, all heads together.
        teacher: the teacher's.
        default: the teacher's number of attention heads.
        requested: the recipe's number, if any.
    """
    common = math.gcd(student, teacher)
    divisors = [heads for heads in range(1, common + 1) if common % heads == 0]
    if requested is None:
        return max(heads for heads in divisors if heads <= default)
    if requested not in divisors:
        raise UsageError(
            f"relation.heads: {requested} does not divide query widths {student} (student) and {teacher} (teacher).",
            hint=f"set relation.heads to one of {', '.join(map(str, divisors))}, or leave it out",
        )
    return requested


def _split_heads(vectors: Tensor, heads: int) -> Tensor:
    """Return (examples, heads, tokens, size) with another number of heads; a view where memory layout allows."""
    if vectors.shape[1] == heads:
        return vectors
    examples, _, tokens, _ = vectors.shape
    return vectors.transpose(1, 2).reshape(examples, tokens, heads, -1).transpose(1, 2)
