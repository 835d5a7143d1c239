"""Decoupled soft labels: how sure the teacher is of the true class, and what it thinks of the others.

Zhao et al., "Decoupled Knowledge Distillation", 2022 (arXiv:2203.08679).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from compress.losses.tensor_ops.row_groups import MASKED_LOGIT, RowGroups


def decoupled_distance(
    student: Tensor, teacher: Tensor, right: Tensor, temperature: float, target: float, others: float
) -> Tensor:
    """``T² (target * KL(b_t | b_s) + others * KL(q_t | q_s))`` (things,).

    b is the chance of the true class against that of all others together, q the distribution over the others alone,
    all at the temperature T. In plain `kl` the second part weighs ``1 - p_t``, next to nothing where the teacher is
    sure of the true class; here it weighs the same for each row. With two classes there is one other, so the second
    part is zero; with one class both are.

    Args:
        student: logits (things, classes).
        teacher: logits, finite.
        right: the true class (things,) int64.
        temperature: above one small probabilities count more.
        target: what the first part weighs (the paper's alpha, 1).
        others: what the second part weighs (beta, which the paper chooses for each teacher).
    """
    ours, theirs = _parts(student / temperature, right), _parts(teacher / temperature, right)
    apart = [F.kl_div(s, t, reduction="none", log_target=True).sum(dim=-1) for s, t in zip(ours, theirs, strict=True)]
    return temperature**2 * (target * apart[0] + others * apart[1])


def target_classes(problem: str, teacher: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """The class (things,) that counts as true: what the row says, else what the teacher finds likeliest.

    A row says it where one class or one choice of several is right, unless `labelled` (examples,) in the batch is zero
    for it. Tags, places of an answer and rankings follow the teacher's likeliest.

    Args:
        problem: the task kind's.
        teacher: its logits (things, classes).
        batch: `labels`, and `group` where rows are several examples.
    """
    likeliest = teacher.argmax(dim=-1)
    if problem not in TRUE or "labels" not in batch:
        return likeliest
    groups = RowGroups.of(batch)
    labels = batch["labels"]
    told = groups.first(labels) if problem == "single_label_classification" else groups.padded(labels).argmax(dim=1)
    if "labelled" not in batch:
        return told
    labelled = batch["labelled"].to(told.device, non_blocking=True)  # the host knows it too
    return torch.where(groups.first(labelled) > 0, told, likeliest)


TRUE = ("single_label_classification", "choice")
"""Problems in which a row has one true class."""


def _parts(logits: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Log chances (things, 2) of the true class and all others together, and (things, classes) of each other one."""
    true = logits.gather(-1, right[:, None])
    beside = logits.scatter(-1, right[:, None], MASKED_LOGIT)
    both = torch.cat([true, beside.logsumexp(dim=-1, keepdim=True)], dim=-1)
    return both.log_softmax(dim=-1), beside.log_softmax(dim=-1)
