"""How alike the layers of a student and its teacher are before the student learns, and the map that follows from it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.console import Console
from compress.data.encode import batches_by_length
from compress.model_info import LayerMap
from compress.models.encoder_parts import layers_of
from compress.models.forward_hooks import capture
from compress.recipe.training_schema import Distill
from compress.train.core.distributed import Processes
from compress.train.distillation.cka import LinearCKA, align_layers
from compress.train.distillation.layer_map import Pairs, layer_map
from compress.train.distillation.layer_pairs import uses_layer_map
from compress.train.distillation.phases import loss_phases
from compress.train.objective import Examples, forward

ROWS, PIECES, BATCH = 256, 16_384, 32
"""Training rows that tell how alike layers are, at most; pieces in them, at most; rows that run together."""


class LayerMapBuilder:
    """Makes the layer map of each student that learns from one teacher; the last one is remembered for its folder."""

    def __init__(
        self, teacher: PreTrainedModel, settings: Distill, examples: Examples, console: Console, label: str
    ) -> None:
        self._teacher = teacher
        self._settings = settings
        self._examples = examples
        self._console = console
        self._label = label
        self.last: LayerMap | None = None
        """Of the student that was asked for last; None where no loss looks at mapped layers."""

    def __call__(self, student: PreTrainedModel, seed: int) -> Pairs | None:
        """The pairs for this student, as it is now."""
        if not uses_layer_map(loss_phases(self._settings)):
            return None
        wanted = self._settings.layer_map
        depths = len(layers_of(student)), len(layers_of(self._teacher))
        given = None if wanted == "measured" else layer_map(wanted, *depths)
        sample = _sample(self._examples, seed)
        likeness = layer_similarity(student, self._teacher, self._examples, sample)
        pairs = _agreed(align_layers(likeness)) if given is None else given
        self.last = LayerMap(
            chosen=wanted if isinstance(wanted, str) else "given",
            pairs=pairs,
            likeness=tuple(tuple(round(value, 4) for value in row) for row in likeness.tolist()),
            rows=len(sample),
        )
        self._console.note(f"{self._label}: layers follow {self.last.text}")
        return pairs


def layer_similarity(
    student: PreTrainedModel, teacher: PreTrainedModel, examples: Examples, sample: NDArray[np.int64]
) -> Tensor:
    """CKA (student's layers, teacher's layers) of the real pieces of these examples, where training will run."""
    device, found = student.device, LinearCKA()
    for model in (student, teacher):
        nn.Module.to(model, Processes().device).train(False)
    for places in batches_by_length(examples.lengths[sample], BATCH):
        batch = {name: torch.from_numpy(array) for name, array in examples.batch(sample[places]).items()}
        found.add(_features(student, batch), _features(teacher, batch))
    nn.Module.to(student, device)
    return found.matrix()


def _features(model: PreTrainedModel, batch: dict[str, Tensor]) -> list[Tensor]:
    """What each layer hands on of every real piece."""
    here = {name: tensor.to(model.device) for name, tensor in batch.items()}
    layers = range(len(layers_of(model)))
    with torch.no_grad(), capture(model, layers, ["hidden"]) as seen:
        forward(model, here)
    return [seen[layer]["hidden"][here["attention_mask"].bool()] for layer in layers]


def _sample(examples: Examples, seed: int) -> NDArray[np.int64]:
    """Examples drawn from all, at least one."""
    drawn = np.random.default_rng(seed).permutation(len(examples.lengths))[:ROWS]
    enough = int((np.cumsum(examples.lengths[drawn]) <= PIECES).sum())
    return np.asarray(drawn[: max(1, enough)], dtype=np.int64)


def _agreed(pairs: Pairs) -> Pairs:
    """The main process's pairs: rounding may differ from device to device."""
    processes = Processes()
    return tuple((ours, int(processes.from_main(theirs))) for ours, theirs in pairs)
