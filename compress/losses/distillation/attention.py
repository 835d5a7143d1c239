"""Attention: the student looks where the teacher looks.

It is computed from Q and K, so that models keep their fast attention, which returns no maps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from compress.losses.tensor_ops.row_groups import RowGroups
from compress.losses.tensor_ops.token_maps import (
    MAX_ELEMENTS,
    attention_scores,
    kl_distance,
    masked_softmax,
    squared_distance,
    token_map_loss,
)

if TYPE_CHECKING:
    from compress.recipe.loss_schema import Attention

LOOKED_INTO = 8
"""So many examples tell which heads are alike."""


def attention(
    student: Mapping[str, Tensor], teacher: Mapping[str, Tensor], batch: Mapping[str, Tensor], settings: Attention
) -> Tensor:
    """How far apart two layers' heads look, over heads and real tokens, as a mean over rows.

    - `kl`: ``KL(softmax(t) | softmax(s))`` of each line of attention. Wang et al., "MiniLM: Deep Self-Attention
      Distillation for Task-Agnostic Compression", 2020 (arXiv:2002.10957).
    - `scores`: ``(s - t)²`` of the scores before the softmax, as a mean over real tokens. It grows with the square of
      the scores, and it also fixes what a softmax does not see: a number added to a whole line. Jiao et al.,
      "TinyBERT: Distilling BERT for Natural Language Understanding", 2020 (arXiv:1909.10351).

    With equal numbers of heads each follows its own. Else each of the student's follows the teacher's head that looks
    most like it in this batch, no two the same one while others are free: so a pruned head finds the one that it was.
    Heads that are left over are followed by none. (Their average would be no head's map.)

    Args:
        student: `query` and `key` (examples, heads, tokens, head size).
        teacher: the same, of any number of heads and any head size; it gets no gradient.
        batch: `attention_mask` (examples, tokens), one for real tokens; `group` where rows are several examples.
        settings: its `form`.
    """
    ours, theirs = (student["query"], student["key"]), (teacher["query"].detach(), teacher["key"].detach())
    if ours[0].shape[1] != theirs[0].shape[1]:
        followed = matched(ours[0].detach(), ours[1].detach(), *theirs, batch)
        theirs = theirs[0][:, followed], theirs[1][:, followed]
    return token_map_loss(ours, theirs, batch, kl_distance if settings.form == "kl" else squared_distance)


@torch.no_grad()
def matched(query: Tensor, key: Tensor, their_query: Tensor, their_key: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Which teacher's head each of the student's follows (student's heads,), by the kl_distance of their maps."""
    tokens, heads = query.shape[2], query.shape[1] + their_query.shape[1]
    some = slice(max(1, min(LOOKED_INTO, MAX_ELEMENTS["cpu"] // (heads * tokens**2))))
    mask = batch["attention_mask"][some]
    real = mask[:, None, None].bool()
    weights = RowGroups.of({"input_ids": mask}).weights(mask)[:, None, :, None]
    ours, theirs = attention_scores(query[some], key[some]), attention_scores(their_query[some], their_key[some])
    our_sum, (share, their_sum) = masked_softmax(ours, real)[1], masked_softmax(theirs, real)
    wanted = share * weights
    known = ((theirs - their_sum) * wanted).transpose(0, 1).flatten(1).sum(dim=1)
    guessed = (ours - our_sum).transpose(0, 1).flatten(1) @ wanted.transpose(0, 1).flatten(1).T
    return torch.tensor(_closest_first(known - guessed), device=query.device)


def _closest_first(apart: Tensor) -> list[int]:
    """The column of each line: the closest two first, each column as seldom as can be."""
    lines, columns = apart.shape
    most = -(-lines // columns)
    chosen: dict[int, int] = {}
    taken = [0] * columns
    for place in apart.flatten().argsort(stable=True).tolist():
        line, column = divmod(place, columns)
        if line not in chosen and taken[column] < most:
            chosen[line] = column
            taken[column] += 1
    return [chosen[line] for line in range(lines)]
