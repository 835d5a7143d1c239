"""Attention: the student's attention maps match the teacher's.

Maps are computed from queries and keys, so that models keep their fast attention kernels, which return no maps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from compress.losses.tensor_ops.row_groups import RowGroups, Tensors
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

MATCHING_EXAMPLES = 8
"""Examples of a batch from which similar heads are determined."""


def attention(student: Tensors, teacher: Tensors, batch: Tensors, settings: Attention) -> Tensor:
    """Return the distance of two layers' attention, over heads and real tokens, as a mean over rows.

    - `kl`: ``KL(softmax(t) | softmax(s))`` of each line of attention. Wang et al., "MiniLM: Deep Self-Attention
      Distillation for Task-Agnostic Compression", 2020 (arXiv:2002.10957).
    - `scores`: ``(s - t)²`` of the scores before the softmax, as a mean over real tokens. It grows with the square of
      the scores, and also fixes what a softmax ignores: a constant added to a whole line. Jiao et al., "TinyBERT:
      Distilling BERT for Natural Language Understanding", 2020 (arXiv:1909.10351).

    With equal numbers of heads, heads are paired by index. Otherwise each student head is paired with the teacher head
    whose maps are most similar in this batch, each teacher head at most once while others are unpaired; so a head that
    survived pruning is paired with its original. Teacher heads without a partner are ignored. (The average of several
    heads would be no head's map.)

    Args:
        student: `query` and `key` (examples, heads, tokens, head size).
        teacher: the same, with any number of heads and any head size; it gets no gradient.
        batch: `attention_mask` (examples, tokens), one for real tokens; `group` where rows are several examples.
        settings: its `form`.
    """
    ours, theirs = (student["query"], student["key"]), (teacher["query"].detach(), teacher["key"].detach())
    if ours[0].shape[1] != theirs[0].shape[1]:
        heads = match_heads(ours[0].detach(), ours[1].detach(), *theirs, batch)
        theirs = theirs[0][:, heads], theirs[1][:, heads]
    return token_map_loss(ours, theirs, batch, kl_distance if settings.form == "kl" else squared_distance)


@torch.no_grad()
def match_heads(query: Tensor, key: Tensor, teacher_query: Tensor, teacher_key: Tensor, batch: Tensors) -> Tensor:
    """Return the teacher head for each student head (student heads,), by the KL divergence of their maps."""
    tokens, heads = query.shape[2], query.shape[1] + teacher_query.shape[1]
    sample = slice(max(1, min(MATCHING_EXAMPLES, MAX_ELEMENTS["cpu"] // (heads * tokens**2))))
    mask = batch["attention_mask"][sample]
    real = mask[:, None, None].bool()
    weights = RowGroups.from_batch({"input_ids": mask}).item_weights(mask)[:, None, :, None]
    ours = attention_scores(query[sample], key[sample])
    theirs = attention_scores(teacher_query[sample], teacher_key[sample])
    student_sum, (probabilities, teacher_sum) = masked_softmax(ours, real)[1], masked_softmax(theirs, real)
    p = probabilities * weights
    negative_entropy = ((theirs - teacher_sum) * p).transpose(0, 1).flatten(1).sum(dim=1)
    cross = (ours - student_sum).transpose(0, 1).flatten(1) @ p.transpose(0, 1).flatten(1).T
    return torch.tensor(_greedy_assignment(negative_entropy - cross), device=query.device)


def _greedy_assignment(distances: Tensor) -> list[int]:
    """Return a column for each line: closest pairs first, every column used as evenly as possible."""
    lines, columns = distances.shape
    each, once_more = divmod(lines, columns)
    chosen: dict[int, int] = {}
    uses = [0] * columns
    for index in distances.flatten().argsort(stable=True).tolist():
        line, column = divmod(index, columns)
        if line not in chosen and uses[column] < each + (once_more > 0):
            once_more -= uses[column] == each
            chosen[line] = column
            uses[column] += 1
    return [chosen[line] for line in range(lines)]
