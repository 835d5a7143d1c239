"""Soft labels: the student answers as the teacher does, wrong answers included.

Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015 (arXiv:1503.02531).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

PROBLEMS = ("single_label_classification", "multi_label_classification", "regression")


def soft_label(student: Tensor, teacher: Tensor, temperature: float = 4.0, problem: str = PROBLEMS[0]) -> Tensor:
    """How far the student's answers are from the teacher's, as a mean over rows; zero where they are equal.

    Args:
        student: logits (rows, classes), or (rows, 1) for regression.
        teacher: logits of the same shape, without gradient.
        temperature: above one the teacher's small probabilities count more; the result is multiplied by its square, so
            that the gradient's size hardly depends on it. Regression has no temperature.
        problem: one class (KL of the softmax), several at once (KL of each class's sigmoid) or a number (squared
        error).
    """
    if student.shape != teacher.shape:
        raise ValueError(f"student answers {tuple(student.shape)} and teacher answers {tuple(teacher.shape)} differ")
    student, teacher = student.float(), teacher.float()
    if problem == "regression":
        return F.mse_loss(student, teacher)
    if problem == "multi_label_classification":
        return temperature**2 * _binary_divergence(student / temperature, teacher / temperature)
    if problem != "single_label_classification":
        raise ValueError(f"soft labels know {', '.join(PROBLEMS)}; got {problem}")
    wanted = F.log_softmax(teacher / temperature, dim=-1)
    given = F.log_softmax(student / temperature, dim=-1)
    return temperature**2 * F.kl_div(given, wanted, reduction="batchmean", log_target=True)


def _binary_divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """KL of independent yes/no answers, averaged over classes and rows."""
    wanted = torch.sigmoid(teacher)
    floor = F.binary_cross_entropy_with_logits(teacher, wanted)
    return F.binary_cross_entropy_with_logits(student, wanted) - floor
