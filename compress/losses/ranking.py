"""Candidates in order: those that are right share the softmax over their row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from compress.losses.groups import Groups
from compress.losses.views import of_choices

if TYPE_CHECKING:
    from compress.folder import TaskInfo


def ranking(outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor], task: TaskInfo) -> Tensor:
    """The mean of ``-log softmax(z)[right]`` over the right ones of each row's candidates, as a mean over rows.

    Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007, with relevance 0 or 1: the
    wanted distribution is even over the right candidates. A row whose candidates are all right, or all wrong, has no
    order to learn: it costs nothing.

    Args:
        outputs: `logits` (examples, 1): an example is a question with one of its candidates.
        batch: `labels` (examples,) float32, 1 for right candidates and 0 for others; `group` (examples,).
        task: not looked at.
    """
    (view,) = of_choices(outputs, batch, task)
    groups = Groups.of(batch)
    right = groups.padded(batch["labels"].float())
    total = right.sum(dim=1)
    wrong = -(view.logits.log_softmax(dim=1) * right).sum(dim=1) / total.clamp(min=1)
    return (wrong * (total < groups.counts)).mean()
