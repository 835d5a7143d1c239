"""Soft labels: the student answers as the teacher does, wrong answers included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from compress.losses.distillation.decoupled import decoupled_distance, target_classes
from compress.losses.tensor_ops.logit_views import LogitView, logit_views
from compress.losses.tensor_ops.row_groups import MASKED_LOGIT

if TYPE_CHECKING:
    from compress.model_info import TaskInfo
    from compress.recipe.loss_schema import SoftLabel

Distance = Callable[[Tensor, Tensor], Tensor]
"""(student's logits, teacher's) (things, classes) -> (things,)."""
Soft = Callable[[Tensor, Tensor, float], Tensor]
"""The same at a temperature."""


def soft_label(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    batch: Mapping[str, Tensor],
    task: TaskInfo,
    problem: str,
    settings: SoftLabel,
) -> Tensor:
    """How far the student's answers are from the teacher's, as a mean over rows; zero where they are equal.

    What is compared depends on the problem: a distribution over the classes of a row, or over the tags of each real
    token, over the places where an answer starts and those where it ends (the mean of both; only places that can be
    answers), or over the choices or candidates of a row. Three forms:

    - `kl`: ``T² KL(softmax(t/T) | softmax(s/T))``. Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural
      Network", 2015 (arXiv:1503.02531). Several classes at once: the KL of each class's yes or no, as a mean over
      classes.
    - `mse`: ``(s - t)²`` of the logits, as a mean over classes; twice what `kl` comes to for a high temperature, and a
      number added to all logits, which `kl` does not see, is fixed too. Kim et al., "Comparing Kullback-Leibler
      Divergence and Mean Squared Error Loss in Knowledge Distillation", 2021 (arXiv:2105.08919).
    - `decoupled`: how sure the teacher is of the true class, and what it thinks of the others, weighed apart
      (`decoupled.py`). Several classes at once have no true class: there it is `kl`.

    A number, or an embedding, has one form: the squared distance ``|s - t|²``, which for embeddings of length one is
    ``2 - 2 cos``, as a mean over a row's texts (Reimers and Gurevych, "Making Monolingual Sentence Embeddings
    Multilingual using Knowledge Distillation", 2020, arXiv:2004.09813).

    Args:
        ours: the student's outputs, in the shapes that `logit_views.py` tells.
        theirs: the teacher's, of the same shapes, without gradient. Probabilities that rows bring along become outputs
            in `given.py`; a logit of minus infinity (a probability of zero) is fine.
        batch: what the models were given, and what of it can be an answer.
        task: how windows are pooled.
        problem: the task kind's; see `TASK_LOSSES`.
        settings: `form`; `temperature`: above one the teacher's small probabilities count more. The result is
            multiplied by its square, so that the gradient's size hardly depends on it. Numbers, embeddings and `mse`
            have none; `target` and `others` are for `decoupled`.
    """
    losses = [
        (distance(student.logits, teacher.logits) * student.weight).sum()
        for student, teacher, distance in _compared(ours, theirs, batch, task, problem, settings)
    ]
    return torch.stack(losses).mean()


def _compared(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    batch: Mapping[str, Tensor],
    task: TaskInfo,
    problem: str,
    settings: SoftLabel,
) -> Iterator[tuple[LogitView, LogitView, Distance]]:
    """Each view of both models' answers, and how it is compared."""
    wanted = logit_views(problem, {name: answer.detach() for name, answer in theirs.items()}, batch, task)
    for student, teacher in zip(logit_views(problem, ours, batch, task), wanted, strict=True):
        if student.logits.shape != teacher.logits.shape:
            shapes = tuple(student.logits.shape), tuple(teacher.logits.shape)
            raise ValueError(f"student answers {shapes[0]} and teacher answers {shapes[1]} differ")
        yield student, teacher, _distance(problem, teacher, batch, settings)


def _distance(problem: str, teacher: LogitView, batch: Mapping[str, Tensor], settings: SoftLabel) -> Distance:
    temperature = settings.temperature or 1.0
    if problem in VECTORS:
        return squared_distance
    if settings.form == "mse":
        return logit_distance
    if problem == "multi_label_classification":
        return lambda ours, theirs: sigmoid_distance(ours, theirs, temperature)
    if settings.form == "decoupled":
        right = target_classes(problem, teacher.logits, batch)
        return lambda ours, theirs: decoupled_distance(
            ours, floored(theirs), right, temperature, settings.target, settings.others
        )
    return lambda ours, theirs: softmax_distance(ours, theirs, temperature)


VECTORS = ("regression", "similarity", "retrieval")
"""Problems whose answers are compared as they are; all others are chances of something."""

LEAST = -13.8
"""What a logit of minus infinity counts as where numbers are asked for: a probability of one in a million."""


def softmax_distance(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """KL of distributions (things, classes) over classes, times the squared temperature."""
    wanted = (teacher / temperature).softmax(dim=-1)  # not its logarithm: a probability of zero is fine
    given = (student / temperature).log_softmax(dim=-1)
    return temperature**2 * F.kl_div(given, wanted, reduction="none").sum(dim=-1)


def sigmoid_distance(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """KL of independent yes/no answers (things, classes), averaged over classes, times the squared temperature."""
    wanted = torch.sigmoid(teacher / temperature)
    floor = torch.special.entr(wanted) + torch.special.entr(torch.sigmoid(-teacher / temperature))
    given = F.binary_cross_entropy_with_logits(student / temperature, wanted, reduction="none")
    apart: Tensor = given - floor
    return temperature**2 * apart.mean(dim=-1)


def logit_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Squared difference of logits (things, classes), as a mean over what can be chosen."""
    able = teacher != MASKED_LOGIT
    return squared_distance(student, floored(teacher)) / able.sum(dim=-1)


def squared_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """The squared length of the difference of vectors (things, width)."""
    return (student - teacher).square().sum(dim=-1)


def floored(logits: Tensor) -> Tensor:
    """Logits in which minus infinity is a number; what is no number stays none, and so does the loss."""
    return logits.nan_to_num(nan=torch.nan, neginf=LEAST, posinf=-LEAST)
