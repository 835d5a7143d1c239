"""The layer map of each student, and the CKA of its layers with the teacher's before training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.console import Console
from compress.data.encode import batches_by_length
from compress.model_info import LayerMap
from compress.models.encoder_parts import layers_of
from compress.models.forward_hooks import capture_parts
from compress.recipe.training_schema import Distill
from compress.train.core.distributed import current_processes
from compress.train.distillation.cka import LinearCKA, align_layers
from compress.train.distillation.layer_map import Pairs, layer_map
from compress.train.distillation.layer_pairs import uses_layer_map
from compress.train.distillation.phases import loss_phases
from compress.train.objective import Examples, forward

MAX_ROWS, MAX_TOKENS, BATCH = 256, 16_384, 32
"""Limits of the sample of training rows on which CKA is measured, and rows per batch."""


@dataclass
class LayerMapBuilder:
    """Creates the layer map of each student of one teacher; stores the last one for the model folder."""

    teacher: PreTrainedModel
    settings: Distill
    examples: Examples
    console: Console
    label: str
    last: LayerMap | None = None
    """That of the last student; None where no loss uses mapped layers."""

    def __call__(self, student: PreTrainedModel, seed: int) -> Pairs | None:
        """Return the layer pairs for this student with its current weights."""
        if not uses_layer_map(loss_phases(self.settings)):
            return None
        setting = self.settings.layer_map
        depths = len(layers_of(student)), len(layers_of(self.teacher))
        given = None if setting == "measured" else layer_map(setting, *depths)
        sample = _sample(self.examples, seed)
        similarity = layer_similarity(student, self.teacher, self.examples, sample)
        if given is None:  # the main process decides, since rounding may differ between devices
            measured, processes = align_layers(similarity), current_processes()
            pairs: Pairs = tuple((own, int(processes.from_main(other))) for own, other in measured)
        else:
            pairs = given
        self.last = LayerMap(
            chosen=setting if isinstance(setting, str) else "given",
            pairs=pairs,
            likeness=tuple(tuple(round(value, 4) for value in row) for row in similarity.tolist()),
            rows=len(sample),
        )
        self.console.note(f"{self.label}: layer map {self.last.text}")
        return pairs


def layer_similarity(
    student: PreTrainedModel, teacher: PreTrainedModel, examples: Examples, sample: NDArray[np.int64]
) -> Tensor:
    """Return CKA (student layers, teacher layers) over the real tokens of these examples, on the training's device."""
    device, cka = student.device, LinearCKA()
    for model in (student, teacher):
        nn.Module.to(model, current_processes().device).train(False)
    for indices in batches_by_length(examples.lengths[sample], BATCH):
        batch = {name: torch.from_numpy(array) for name, array in examples.batch(sample[indices]).items()}
        cka.add(_features(student, batch), _features(teacher, batch))
    nn.Module.to(student, device)
    return cka.matrix()


def _features(model: PreTrainedModel, batch: dict[str, Tensor]) -> list[Tensor]:
    """Return the output of each layer for every real token."""
    moved = {name: tensor.to(model.device) for name, tensor in batch.items()}
    layers = range(len(layers_of(model)))
    with torch.no_grad(), capture_parts(model, {layer: ["hidden"] for layer in layers}) as captured:
        forward(model, moved)
    return [captured[layer]["hidden"][moved["attention_mask"].bool()] for layer in layers]


def _sample(examples: Examples, seed: int) -> NDArray[np.int64]:
    """Draw examples, at least one."""
    drawn = np.random.default_rng(seed).permutation(len(examples.lengths))[:MAX_ROWS]
    enough = int((np.cumsum(examples.lengths[drawn]) <= MAX_TOKENS).sum())
    return np.asarray(drawn[: max(1, enough)], dtype=np.int64)
