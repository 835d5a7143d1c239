"""The layer map of each student, and the similarity of its layers with the teacher's before training.

Kornblith et al., "Similarity of Neural Network Representations Revisited", 2019 (arXiv:1905.00414): linear centred
kernel alignment, CKA = |Yᵀ X|² / (|Xᵀ X| |Yᵀ Y|) in Frobenius norms, for centred features. It is 1 for layers that
are a rotation and scaling of each other, near 0 for unrelated layers, and widths may differ.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.console import Console
from compress.data.encode import batches_by_length
from compress.model_folder.model_history import LayerMap, PruningInfo
from compress.models.encoder_parts import capture_parts, layers_of
from compress.recipe.distill_schema import Distill
from compress.train.core.distributed import current_processes, returned
from compress.train.distillation.layer_pairs import Pairs, layer_map, remaining_pairs, uses_layer_map
from compress.train.distillation.phases import loss_phases
from compress.train.objective import Examples, forward, forward_teacher

MAX_ROWS, MAX_TOKENS, BATCH = 256, 16_384, 32
"""Limits of the sample of training rows on which CKA is measured, and rows per batch."""

Features = Sequence[Tensor]
"""The outputs of each layer of a model for the same tokens, each (tokens, width)."""


@dataclass
class LayerMapBuilder:
    """Creates the layer map of each student of one teacher; stores the last one for the model folder."""

    teacher: PreTrainedModel
    settings: Distill
    examples: Examples
    console: Console
    label: str
    pruning: PruningInfo | None = None
    """Of a student that recovers from pruning: its layers follow the teacher's as before, without those dropped."""
    last: LayerMap | None = None
    """That of the last student; None where no loss uses mapped layers."""

    def __call__(self, student: PreTrainedModel, seed: int) -> Pairs | None:
        """Return the layer pairs for this student with its current weights."""
        if not uses_layer_map(loss_phases(self.settings)):
            return None
        setting = self.settings.layer_map
        depths, processes = (len(layers_of(student)), len(layers_of(self.teacher))), current_processes()
        given = None if setting == "measured" else self._given_pairs(*depths)
        sample = _sample(self.examples, seed)
        similarity = layer_similarity(student, self.teacher, self.examples, sample)
        chosen = given or align_layers(similarity)
        # The main process decides, since rounding may differ between devices.
        pairs = tuple((own, int(processes.from_main(other))) for own, other in chosen)
        self.last = LayerMap(
            chosen=setting if isinstance(setting, str) else "given",
            pairs=pairs,
            likeness=tuple(tuple(round(value, 4) for value in row) for row in similarity.tolist()),
            rows=len(sample),
        )
        self.console.note(f"{self.label}: layer map {self.last.text}")
        return pairs

    def _given_pairs(self, student: int, teacher: int) -> Pairs:
        setting, left = self.settings.layer_map, self.pruning.left if self.pruning else []
        if all(left):
            return layer_map(setting, student, teacher)
        return remaining_pairs(layer_map(setting, len(left), teacher), np.flatnonzero(left).tolist())


def layer_similarity(
    student: PreTrainedModel, teacher: PreTrainedModel, examples: Examples, sample: NDArray[np.int64]
) -> Tensor:
    """Return CKA (student layers, teacher layers) over the real tokens of these examples, on the training's device."""
    cka = LinearCKA()
    with returned(student, teacher):
        for model in (student, teacher):
            nn.Module.to(model, current_processes().device).train(False)
        for indices in batches_by_length(examples.lengths[sample], max(1, int(BATCH / _examples_per_row(examples)))):
            batch = {name: torch.from_numpy(array) for name, array in examples.batch(sample[indices]).items()}
            cka.add(_features(student, batch, forward), _features(teacher, batch, forward_teacher))
    return cka.matrix()


def _features(model: PreTrainedModel, batch: dict[str, Tensor], run: Callable[..., object]) -> list[Tensor]:
    """Return the output of each layer for every real token."""
    moved = {name: tensor.to(model.device) for name, tensor in batch.items()}
    layers = range(len(layers_of(model)))
    with torch.no_grad(), capture_parts(model, {layer: ["hidden"] for layer in layers}) as captured:
        run(model, moved)
    return [captured[layer]["hidden"][moved["attention_mask"].bool()] for layer in layers]


def _sample(examples: Examples, seed: int) -> NDArray[np.int64]:
    """Draw examples, at least one."""
    drawn = np.random.default_rng(seed).permutation(len(examples.lengths))[:MAX_ROWS]
    enough = int((np.cumsum(examples.lengths[drawn]) * _examples_per_row(examples) <= MAX_TOKENS).sum())
    return np.asarray(drawn[: max(1, enough)], dtype=np.int64)


def _examples_per_row(examples: Examples) -> float:
    """Return how many examples a row has that goes into a batch with all of them: candidates, choices, windows."""
    return len(examples.example_lengths) / len(examples.lengths)


class LinearCKA:
    """CKA of every student layer with every teacher layer, from sums over tokens, in constant memory."""

    def __init__(self) -> None:
        self._starts: list[Tensor] = []
        self._sums: dict[tuple[int, int], Tensor] = {}
        self._depth = 0

    def add(self, student: Features, teacher: Features) -> None:
        """Add tokens; both models must have processed the same ones."""
        layers, self._depth = [*student, *teacher], len(student)
        if not self._starts:  # shifted near zero, so that centring later does not lose precision
            self._starts = [layer.float().mean(0) for layer in layers]
        shifted = list(map(_shifted, layers, self._starts))
        itself = [(layer, layer) for layer in range(len(layers))]
        for one, other in (*itself, *product(range(self._depth), range(self._depth, len(layers)))):
            sums = shifted[one].T @ shifted[other]
            self._sums[one, other] = self._sums[one, other].add_(sums) if (one, other) in self._sums else sums

    def matrix(self) -> Tensor:
        """Return CKA (student layers, teacher layers); 0 where a layer has the same output for every token."""
        squares = {layers: _squared_norm(sums) for layers, sums in self._sums.items()}
        norms = [math.sqrt(squares[layer, layer]) for layer in range(len(self._starts))]
        teacher = range(self._depth, len(norms))
        rows = [
            [squares[own, other] / (norms[own] * norms[other] or math.inf) for other in teacher]
            for own in range(self._depth)
        ]
        return torch.tensor(rows, dtype=torch.float64)


def align_layers(similarity: Tensor) -> Pairs:
    """Return the non-crossing pairs (student layer, teacher layer) with the largest total similarity.

    Every student layer gets a teacher layer above that of the layer below it; where the student is deeper than the
    teacher, above or the same. Solved exactly by dynamic programming.

    Args:
        similarity: (student layers, teacher layers).
    """
    depth, width = similarity.shape
    step = 1 if depth <= width else 0
    best, came_from = similarity[0].double(), list[list[int]]()
    for row in similarity[1:].double():
        before = best.new_full((width,), -torch.inf)
        before[step:] = best[: width - step]
        reached, origin = before.cummax(0)
        came_from.append((origin - step).tolist())
        best = reached + row
    chosen = [int(best.argmax())]
    for origins in reversed(came_from):
        chosen.append(origins[chosen[-1]])
    return tuple(enumerate(reversed(chosen)))


def _shifted(features: Tensor, start: Tensor) -> Tensor:
    """Return the features minus a constant, with a column of ones whose products are sums and counts."""
    return torch.cat([features.float() - start, features.new_ones(len(features), 1, dtype=torch.float32)], 1)


def _squared_norm(sums: Tensor) -> float:
    """Return the squared norm of the covariance behind these sums, up to a factor that cancels out."""
    exact = sums.double()
    centred = exact[:-1, :-1] - torch.outer(exact[:-1, -1], exact[-1, :-1]) / exact[-1, -1]
    return centred.square().sum().item()
