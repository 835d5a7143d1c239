"""Relations: the tokens of a text are as alike to each other for the student as for the teacher."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from compress.errors import UsageError
from compress.losses.tensor_ops.token_maps import kl_distance, token_map_loss

if TYPE_CHECKING:
    from compress.recipe.loss_schema import Relation


def relation(
    student: Mapping[str, Tensor], teacher: Mapping[str, Tensor], batch: Mapping[str, Tensor], settings: Relation
) -> Tensor:
    """``KL(softmax(t) | softmax(s))`` of self-attention relations, over heads and real tokens, as a mean over rows.

    A relation of queries, say, is ``a·b / √size`` of each token's query with all others'. Vectors of all heads are
    laid side by side and cut into relation heads, whose number has nothing to do with that of attention heads: so
    student and teacher may differ in heads and in width.

    `[qk, vv]` is Wang et al., "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression", 2020
    (arXiv:2002.10957); `[qq, kk, vv]` Wang et al., "MiniLMv2: Multi-Head Self-Attention Relation
    Distillation for Compressing Pretrained Transformers", 2021 (arXiv:2012.15828). Both add pairs up; here it is
    their mean, so that the weight does not depend on how many there are.

    Maps are made and dropped a few at a time (`maps.py`), so memory does not grow with heads times tokens squared.

    Args:
        student: of `query`, `key` and `value` those that pairs name (examples, heads, tokens, head size).
        teacher: the same, of any number of heads and any head size; it gets no gradient.
        batch: `attention_mask` (examples, tokens), one for real tokens; `group` where rows are several examples.
        settings: `pairs`; `heads`: more of them are smaller and see finer relations, at a cost that grows with their
            number. By default the teacher's, or the next smaller number that cuts both models' vectors evenly.
    """
    usual = settings.sides[0]
    heads = relation_heads(_width(student[usual]), _width(teacher[usual]), teacher[usual].shape[1], settings.heads)
    ours = {name[0]: _cut(student[name], heads) for name in settings.sides}
    theirs = {name[0]: _cut(teacher[name].detach(), heads) for name in settings.sides}
    losses = [token_map_loss((ours[a], ours[b]), (theirs[a], theirs[b]), batch, kl_distance) for a, b in settings.pairs]
    return torch.stack(losses).mean()


def relation_heads(student: int, teacher: int, usual: int, asked: int | None) -> int:
    """How many relation heads: those asked for, or the most up to the usual number that cut both widths evenly.

    Args:
        student: the width of the student's queries, all heads together.
        teacher: the teacher's.
        usual: the teacher's number of heads.
        asked: what the recipe says.
    """
    both = math.gcd(student, teacher)
    able = [heads for heads in range(1, both + 1) if both % heads == 0]
    if asked is None:
        return max(heads for heads in able if heads <= usual)
    if asked not in able:
        near = sorted(sorted(able, key=lambda heads: abs(heads - asked))[:6])
        raise UsageError(
            f"relation.heads: {asked} do not cut queries of {student} (student) and {teacher} (teacher) evenly.",
            hint=f"relation: {{heads: ...}} with one of {', '.join(map(str, near))}, or without",
        )
    return asked


def _width(vectors: Tensor) -> int:
    _, heads, _, size = vectors.shape
    return heads * size


def _cut(vectors: Tensor, heads: int) -> Tensor:
    """(examples, heads, tokens, size) cut anew; without a copy where heads still lie side by side."""
    if vectors.shape[1] == heads:
        return vectors
    examples, _, tokens, _ = vectors.shape
    return vectors.transpose(1, 2).reshape(examples, tokens, heads, -1).transpose(1, 2)
