"""Soft labels: the student's output distribution matches the teacher's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from compress.losses import OutputForm
from compress.losses.distillation.decoupled import decoupled_distance, target_classes
from compress.losses.tensor_ops.row_groups import MASKED_LOGIT, Tensors

if TYPE_CHECKING:
    from compress.recipe.loss_schema import SoftLabel


def soft_label(
    student: Tensors, teacher: Tensors, batch: Tensors, pooling: str, form: OutputForm, settings: SoftLabel
) -> Tensor:
    """Return the distance between student and teacher outputs as a mean over rows; zero where they are equal.

    What is compared depends on the form of the outputs: the distribution over the classes of a row, over the tags of
    each real token, over start and end positions of an answer (the mean of both; possible positions only), or over the
    choices or candidates of a row. The settings have three forms:

    - `kl`: ``T² KL(softmax(t/T) | softmax(s/T))``. Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural
      Network", 2015 (arXiv:1503.02531). Multi-label: the binary KL of each class, as a mean over classes.
    - `mse`: ``(s - t)²`` of the logits, as a mean over classes; twice the limit of `kl` for high temperatures. It also
      fixes a constant added to all logits, which `kl` ignores. Kim et al., "Comparing Kullback-Leibler
      Divergence and Mean Squared Error Loss in Knowledge Distillation", 2021 (arXiv:2105.08919).
    - `decoupled`: the confidence in the target class and the distribution over the others, with separate weights
      (`decoupled.py`). Multi-label problems have no target class and use `kl`.

    Numbers and embeddings have one form: the squared distance ``|s - t|²``, which for embeddings of length one is
    ``2 - 2 cos``, as a mean over a row's texts (Reimers and Gurevych, "Making Monolingual Sentence Embeddings
    Multilingual using Knowledge Distillation", 2020, arXiv:2004.09813).

    Args:
        student: the student's outputs, in the shapes that `logit_views.py` describes.
        teacher: the teacher's, of the same shapes; they get no gradient. Probabilities of the data set are turned into
            outputs by `soft_targets.py`; a logit of minus infinity (a probability of zero) is allowed.
        batch: the models' inputs, and the mask of possible answers.
        pooling: how windows are pooled (the task's `long`).
        form: of the outputs, a fact of the task's kind.
        settings: `form`; `temperature`: above one, small probabilities of the teacher count more. The result is
            multiplied by its square, so that the size of the gradient hardly depends on it. Numbers, embeddings and
            `mse` have none; `target` and `others` are for `decoupled`.
    """
    detached = {name: output.detach() for name, output in teacher.items()}
    views = zip(*(form.views(outputs, batch, pooling) for outputs in (student, detached)), strict=True)
    losses = [
        (_distance(form, ours.logits, theirs.logits, batch, settings) * ours.weight).sum() for ours, theirs in views
    ]
    return torch.stack(losses).mean()


def _distance(form: OutputForm, student: Tensor, teacher: Tensor, batch: Tensors, settings: SoftLabel) -> Tensor:
    """Return the distance between logits (items, classes), as (items,)."""
    temperature = settings.temperature or 1.0
    if form.distribution is None:
        return squared_distance(student, teacher)
    if settings.form == "mse":
        return logit_distance(student, teacher)
    if form.distribution == "sigmoid":
        return sigmoid_distance(student, teacher, temperature)
    if settings.form == "decoupled":
        target = target_classes(teacher, batch) if form.has_target else teacher.argmax(dim=-1)
        return decoupled_distance(student, floored(teacher), target, temperature, settings.target, settings.others)
    return softmax_distance(student, teacher, temperature)


MIN_LOGIT = -13.8
"""Replaces a logit of minus infinity where finite numbers are needed: a probability of one in a million."""


def softmax_distance(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the KL divergence over classes (items, classes), times the squared temperature."""
    target = (teacher / temperature).softmax(dim=-1)  # not its logarithm: a probability of zero is allowed
    log_q = (student / temperature).log_softmax(dim=-1)
    return temperature**2 * F.kl_div(log_q, target, reduction="none").sum(dim=-1)


def sigmoid_distance(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the binary KL divergence of each class (items, classes), averaged, times the squared temperature."""
    target = torch.sigmoid(teacher / temperature)
    entropy = torch.special.entr(target) + torch.special.entr(torch.sigmoid(-teacher / temperature))
    cross = F.binary_cross_entropy_with_logits(student / temperature, target, reduction="none")
    divergence: Tensor = cross - entropy
    return temperature**2 * divergence.mean(dim=-1)


def logit_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the squared difference of logits (items, classes), as a mean over possible classes."""
    possible = teacher != MASKED_LOGIT
    return squared_distance(student, floored(teacher)) / possible.sum(dim=-1)


def squared_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the squared length of the difference of vectors (items, width)."""
    return (student - teacher).square().sum(dim=-1)


def floored(logits: Tensor) -> Tensor:
    """Return logits with minus infinity replaced; NaN stays NaN, and so does the loss."""
    return logits.nan_to_num(nan=torch.nan, neginf=MIN_LOGIT, posinf=-MIN_LOGIT)
