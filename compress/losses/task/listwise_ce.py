"""Candidates in order: those that are right share the softmax over their row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from compress.losses.tensor_ops.logit_views import choice_view
from compress.losses.tensor_ops.row_groups import RowGroups

if TYPE_CHECKING:
    from compress.model_info import TaskInfo

TINY = torch.finfo(torch.float32).tiny


def listwise_ce(outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor], task: TaskInfo) -> Tensor:
    """``-sum_i p_i log softmax(z)_i`` over each row's candidates i, ``p = y / sum y``, as a mean over rows.

    Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007, where p is a softmax of the
    labels; here it is even over right candidates (and counts one that is twice as right twice), and zero for wrong
    ones. A row whose candidates are all right, or all wrong, tells nothing apart: it costs nothing.

    Args:
        outputs: `logits` (examples, 1): an example is a question with one of its candidates.
        batch: `labels` (examples,) float32, 0 for wrong candidates, 1 or more for right ones; `group` (examples,).
        task: not looked at.
    """
    (view,) = choice_view(outputs, batch, task)
    groups = RowGroups.of(batch)
    wanted = groups.padded(batch["labels"].float())
    loss = -(view.logits.log_softmax(dim=1) * wanted).sum(dim=1) / wanted.sum(dim=1).clamp(min=TINY)
    return (loss * ((wanted > 0).sum(dim=1) < groups.counts)).mean()
