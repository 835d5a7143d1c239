"""Ranking: cross-entropy of the relevant candidates among all candidates of a row."""

import torch
from torch import Tensor

from compress.losses.tensor_ops.logit_views import choice_view
from compress.losses.tensor_ops.row_groups import RowGroups, Tensors

TINY = torch.finfo(torch.float32).tiny


def listwise_ce(outputs: Tensors, batch: Tensors, pooling: str) -> Tensor:
    """Return ``-sum_i p_i log softmax(z)_i`` over each row's candidates i, ``p = y / sum y``, as a mean over rows.

    Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007, where p is a softmax of the
    labels; here p is proportional to the labels, so uniform over relevant candidates and zero for the others where
    labels are 0 and 1; the lowest label of a row counts as 0. A row whose labels are equal has nothing to rank and loss
    zero.

    Args:
        outputs: `logits` (examples, 1): an example is a query with one of its candidates.
        batch: `labels` (examples,) float32, the more the better; `group` (examples,).
        pooling: not used.
    """
    (view,) = choice_view(outputs, batch, pooling)
    groups = RowGroups.from_batch(batch)
    labels = batch["labels"].float()
    lowest = groups.pad(labels, torch.inf).amin(dim=1, keepdim=True)
    relevance = (groups.pad(labels, -torch.inf) - lowest).clamp(min=0.0)
    loss = -(view.logits.log_softmax(dim=1) * relevance).sum(dim=1) / relevance.sum(dim=1).clamp(min=TINY)
    return loss.mean()
