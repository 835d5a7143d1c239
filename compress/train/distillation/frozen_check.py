"""Check that a student with frozen parts has trainable weights under the losses of every phase."""

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

OUTPUTS = None
"""Key for the outputs of the model, besides layer indices."""


def check_trainable_under_losses(
    student: PreTrainedModel,
    settings: Distill,
    stages: Sequence[LossPhase],
    comparisons: LayerPairs,
    projected: Collection[Pair],
) -> None:
    """Refuse a phase whose initial losses all depend on frozen weights alone (`freeze`).

    ``projected`` are the layer pairs with a projection, which is trainable.
    """
    if settings.freeze is None:
        return
    trainable = _trainable_layers(student, settings.freeze, comparisons)
    for number, stage in enumerate(stages):
        names = stage.weights(stage.start)
        observed = {layer for name in names for layer in comparisons.parts(number, [name], STUDENT) or [OUTPUTS]}
        if not (observed & trainable or comparisons.projected(number, names) & set(projected)):
            where = f" in phase {number + 1}" if settings.phases else ""
            raise ModelError(
                f"freeze: {settings.freeze} leaves nothing to train{where}: "
                f"everything that {' and '.join(names)} depends on is frozen.",
                hint="freeze fewer layers, or use a loss on higher layers; soft_label depends on the whole model",
            )


def _trainable_layers(student: PreTrainedModel, freeze: int | str, comparisons: LayerPairs) -> set[int | None]:
    """Return the layers with trainable weights in or below them, from a forward pass with two tokens.

    Families differ in the modules between embeddings and layers, so that these cannot be listed by name.
    """
    tokens = torch.ones(1, 2, dtype=torch.int64, device=student.device)
    training = student.training
    student.train(False)  # no random numbers are drawn
    with (
        torch.enable_grad(),
        frozen(student, freeze),
        capture_parts(student, comparisons.all_parts(STUDENT)) as captured,
    ):
        outputs = forward(student, {"input_ids": tokens, "attention_mask": tokens})
    student.train(training)
    trainable: set[int | None] = {
        layer for layer, parts in captured.items() if any(part.requires_grad for part in parts.values())
    }
    return trainable | {OUTPUTS for output in outputs.values() if output.requires_grad}
