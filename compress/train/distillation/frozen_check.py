"""Whether what the losses of a distillation see of its student can learn, where a part of it keeps its weights."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.models.forward_hooks import capture_parts
from compress.recipe.training_schema import Distill
from compress.train.core.optimizer import frozen
from compress.train.distillation.layer_pairs import STUDENT, LayerPairs, Pair
from compress.train.distillation.phases import LossPhase
from compress.train.objective import forward

ANSWERS = None
"""Stands for a layer: what the whole model answers."""


def check_trainable_under_losses(
    student: PreTrainedModel,
    settings: Distill,
    stages: Sequence[LossPhase],
    comparisons: LayerPairs,
    projected: Collection[Pair],
) -> None:
    """Refuse a phase that begins with losses of which none sees anything but what keeps its weights (`freeze`).

    ``projected`` are the pairs of layers that have a projection, which learns.
    """
    if settings.freeze is None:
        return
    learning = _learning(student, settings.freeze, comparisons)
    for number, stage in enumerate(stages):
        names = stage.weights(stage.begins)
        seen = {layer for name in names for layer in comparisons.parts(number, [name], STUDENT) or [ANSWERS]}
        if not (seen & learning or comparisons.projected(number, names) & set(projected)):
            where = f" in phase {number + 1}" if settings.phases else ""
            raise ModelError(
                f"freeze: {settings.freeze} leaves nothing to learn{where}: "
                f"all that {' and '.join(names)} can see of the student keeps its weights.",
                hint="freeze less, or take a loss that looks higher; soft_label sees the whole model",
            )


def _learning(student: PreTrainedModel, freeze: int | str, comparisons: LayerPairs) -> set[int | None]:
    """The layers with something that learns in them or below; a pass of two pieces shows what gradients would reach.

    Families differ in what stands between embeddings and layers, and so cannot be asked by name.
    """
    pieces = torch.ones(1, 2, dtype=torch.int64, device=student.device)
    training = student.training
    student.train(False)  # so that nothing random is drawn
    with torch.enable_grad(), frozen(student, freeze), capture_parts(student, comparisons.all_parts(STUDENT)) as seen:
        answers = forward(student, {"input_ids": pieces, "attention_mask": pieces})
    student.train(training)
    found: set[int | None] = {
        layer for layer, parts in seen.items() if any(part.requires_grad for part in parts.values())
    }
    return found | {ANSWERS for answer in answers.values() if answer.requires_grad}
