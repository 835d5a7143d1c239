"""MiniLM's relations: a student learns how the teacher's tokens relate to each other, on texts alone."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from compress.losses.distillation.relation import relation
from compress.models.encoder_parts import LayerParts, capture_parts, layers_of
from compress.recipe.loss_schema import Relation
from compress.train.distillation.teachers import on_device_of, weights_digest
from compress.train.objective import Batch, Losses, Objective, forward

RELATIONS = "relations"


class RelationsObjective(Objective):
    """The relations among queries, keys and values of the last layers, on whole texts.

    Wang et al., "MiniLMv2", 2021 (arXiv:2012.15828); the loss is that of task recipes. Teacher and student may differ
    in depth, width and heads, and neither needs a word head.
    """

    def __init__(self, teacher: PreTrainedModel, settings: Relation | None = None) -> None:
        """``teacher`` is any encoder whose queries, keys and values can be captured."""
        self.teacher, self.settings = teacher.train(False), settings or Relation(weight=1.0)
        with capture_parts(teacher, self._parts(teacher)):
            pass  # a family whose parts cannot be captured is refused now

    def identity(self) -> str:
        """Return what the losses depend on."""
        return f"relations {self.settings.model_dump_json()} {weights_digest(self.teacher)}"

    def has_independent_rows(self) -> bool:
        """Return True: relations are those within a text."""
        return True

    def teachers(self) -> Sequence[PreTrainedModel]:
        """Return the teacher."""
        return [self.teacher]

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """Compute the loss."""
        with torch.no_grad():
            theirs = self._captured(on_device_of(self.teacher, batch["input_ids"]), batch)
        return {RELATIONS: relation(self._captured(model, batch), theirs, batch, self.settings)}

    def _parts(self, model: PreTrainedModel) -> LayerParts:
        return {len(layers_of(model)) - 1: self.settings.sides}

    def _captured(self, model: PreTrainedModel, batch: Batch) -> dict[str, Tensor]:
        """Return the queries, keys and values of a model's last layer (rows, heads, pieces, head size)."""
        with capture_parts(model, self._parts(model)) as captured:
            forward(model, batch)
        (parts,) = captured.values()
        return parts
