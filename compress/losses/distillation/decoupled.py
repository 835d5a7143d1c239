"""Decoupled soft labels: the teacher's confidence in the target class, and its distribution over the others.

Zhao et al., "Decoupled Knowledge Distillation", 2022 (arXiv:2203.08679).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from compress.batch_arrays import LABELLED
from compress.losses.tensor_ops.row_groups import MASKED_LOGIT, RowGroups, Tensors


def decoupled_distance(
    student: Tensor, teacher: Tensor, target_class: Tensor, temperature: float, target: float, others: float
) -> Tensor:
    """Return ``T² (target * KL(b_t | b_s) + others * KL(q_t | q_s))`` (items,).

    b is the binary distribution of the target class against all others together, q the distribution over the others
    alone, all at the temperature T. In plain `kl` the second part has weight ``1 - p_t``, almost zero where the teacher
    is confident; here its weight is the same for each row. With two classes the second part is zero; with one class
    both are.

    Args:
        student: logits (items, classes).
        teacher: logits, finite.
        target_class: (items,) int64.
        temperature: above one, small probabilities count more.
        target: weight of the first part (the paper's alpha, 1).
        others: weight of the second part (beta, which the paper chooses for each teacher).
    """
    ours, theirs = _split(student / temperature, target_class), _split(teacher / temperature, target_class)
    binary, rest = (
        F.kl_div(s, t, reduction="none", log_target=True).sum(dim=-1) for s, t in zip(ours, theirs, strict=True)
    )
    return temperature**2 * (target * binary + others * rest)


def target_classes(teacher: Tensor, batch: Tensors) -> Tensor:
    """Return the target class of each row (rows,): its label if it has one, else the teacher's most likely class.

    Args:
        teacher: its logits (rows, classes).
        batch: `labels` (examples,), whole numbers: the class of the row, or floats: 1 for the example that is right;
            `group` where rows are several examples; `labelled` (examples,), zero where a row's labels mean nothing.
    """
    likeliest = teacher.argmax(dim=-1)
    if "labels" not in batch:
        return likeliest
    groups, labels = RowGroups.from_batch(batch), batch["labels"]
    given = groups.pad(labels).argmax(dim=1) if labels.is_floating_point() else groups.first(labels)
    if LABELLED not in batch:
        return given
    labelled = batch[LABELLED].to(given.device, non_blocking=True)
    return torch.where(groups.first(labelled) > 0, given, likeliest)


def _split(logits: Tensor, target_class: Tensor) -> tuple[Tensor, Tensor]:
    """Return log probabilities (items, 2) of target and all others, and (items, classes) over the others alone."""
    target = logits.gather(-1, target_class[:, None])
    others = logits.scatter(-1, target_class[:, None], MASKED_LOGIT)
    binary = torch.cat([target, others.logsumexp(dim=-1, keepdim=True)], dim=-1)
    return binary.log_softmax(dim=-1), others.log_softmax(dim=-1)
