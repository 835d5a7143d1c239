"""Soft labels: the student answers as the teacher does, wrong answers included.

Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015 (arXiv:1503.02531).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from compress.losses.views import View, views
from compress.recipe.losses import SoftLabel

if TYPE_CHECKING:
    from compress.folder import TaskInfo


def soft_label(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    batch: Mapping[str, Tensor],
    task: TaskInfo,
    problem: str,
    settings: SoftLabel,
) -> Tensor:
    """How far the student's answers are from the teacher's, as a mean over rows; zero where they are equal.

    What is compared depends on the problem. One class of several: ``T² KL(softmax(t/T) | softmax(s/T))``; the same for
    the tag of each real token, for the place where an answer starts and that where it ends (the mean of both; only
    places that can be answers), and for the choices or candidates of a row. Several classes at once: the KL of each
    class's yes or no, as a mean over classes. A number, or an embedding: the squared distance ``|s - t|²``, which for
    embeddings of length one is ``2 - 2 cos``, as a mean over a row's texts (Reimers and Gurevych, "Making Monolingual
    Sentence Embeddings Multilingual using Knowledge Distillation", 2020, arXiv:2004.09813).

    Args:
        ours: the student's outputs, in the shapes that `views.py` tells.
        theirs: the teacher's, of the same shapes, without gradient.
        batch: what the models were given, and what of it can be an answer.
        task: how windows are pooled.
        problem: the task kind's; see `TASK_LOSSES`.
        settings: its temperature: above one the teacher's small probabilities count more; the result is multiplied by its square, so
            that the gradient's size hardly depends on it. Numbers and embeddings have no temperature.
    """
    distance = DISTANCES.get(problem, softmax_distance)
    losses = [
        _weighed(distance, student, teacher, settings.temperature or 1.0)
        for student, teacher in zip(views(problem, ours, batch, task), views(problem, theirs, batch, task), strict=True)
    ]
    return torch.stack(losses).mean()


def _weighed(distance: Distance, student: View, teacher: View, temperature: float) -> Tensor:
    if student.logits.shape != teacher.logits.shape:
        shapes = tuple(student.logits.shape), tuple(teacher.logits.shape)
        raise ValueError(f"student answers {shapes[0]} and teacher answers {shapes[1]} differ")
    return (distance(student.logits, teacher.logits, temperature) * student.weight).sum()


def softmax_distance(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """KL of distributions (things, classes) over classes, times the squared temperature."""
    wanted = F.log_softmax(teacher / temperature, dim=-1)
    given = F.log_softmax(student / temperature, dim=-1)
    return temperature**2 * F.kl_div(given, wanted, reduction="none", log_target=True).sum(dim=-1)


def sigmoid_distance(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """KL of independent yes/no answers (things, classes), averaged over classes, times the squared temperature."""
    wanted = torch.sigmoid(teacher / temperature)
    floor = F.binary_cross_entropy_with_logits(teacher / temperature, wanted, reduction="none")
    given = F.binary_cross_entropy_with_logits(student / temperature, wanted, reduction="none")
    return temperature**2 * (given - floor).mean(dim=-1)


def squared_distance(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """The squared length of the difference of vectors (things, width)."""
    return (student - teacher).square().sum(dim=-1)


Distance = Callable[[Tensor, Tensor, float], Tensor]
DISTANCES: Mapping[str, Distance] = {
    "multi_label_classification": sigmoid_distance,
    "regression": squared_distance,
    "similarity": squared_distance,
    "retrieval": squared_distance,
}
"""How the answers of a problem are compared; those not named here are distributions."""
