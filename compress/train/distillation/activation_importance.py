"""Importance of hidden dimensions, heads and FFN neurons from activations on a sample of training rows.

Muralidharan et al., "Compact Language Models via Pruning and Knowledge Distillation" (Minitron), 2024
(arXiv:2407.14679): activations only, no gradients. Importance is the mean absolute layer norm output of a hidden
dimension, the norm of a head's output, and the mean absolute activation of a neuron.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.data.encode import batches_by_length, encode_rows
from compress.data.tokenizer import TextTokenizer
from compress.errors import ModelError
from compress.model_info import TaskInfo
from compress.model_shapes import changes_shape
from compress.models.encoder_parts import base_of, family_of, head_size, layers_of, part
from compress.models.student.build_student import is_narrowed, source_model
from compress.models.student.slicing import Importance
from compress.recipe.training_schema import Student
from compress.tasks.base import Row
from compress.train.core.distributed import current_processes
from compress.train.objective import Batch

SAMPLE = 512
"""Training rows in the sample."""
BATCH = 32


def importance_for_student(
    student: Student,
    teacher: PreTrainedModel,
    rows: Sequence[Row],
    task: TaskInfo,
    tokens: TextTokenizer,
    seed: int,
) -> Importance | None:
    """Return the importance that `build_student` needs for a narrower student; None for the same widths."""
    if not (changes_shape(student) if student.source else is_narrowed(teacher.config, student)):
        return None
    origin = source_model(teacher, student, task, seed)
    if not is_narrowed(origin.config, student):
        return None
    device = origin.device
    nn.Module.to(origin, current_processes().device)
    importance = measure_activations(origin, _sample(rows, task, tokens, seed))
    nn.Module.to(origin, device)
    return importance


def measure_activations(model: PreTrainedModel, batches: Iterable[Batch]) -> Importance:
    """Return the importance averaged over all real tokens of the batches, without padding and dropout."""
    family, sums = family_of(model), _Sums()
    training = model.training
    model.train(False)
    with torch.no_grad(), _hooked(model, sums):
        for batch in batches:
            arrays = {name: batch[name].to(model.device) for name in family.inputs}
            sums.real = arrays["attention_mask"].bool()
            base_of(model)(**arrays)
    model.train(training)
    importance = sums.importance(model)
    tensors = (importance.moments, *importance.heads, *importance.neurons)
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
        raise ModelError("the importance of some parts is not finite, because the teacher's weights are not.")
    return importance


class _Sums:
    """Sums over tokens, collected by hooks: per module, and for layer norms over all of them."""

    real: Tensor
    """(rows, tokens): true for real tokens of the current batch."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, nn.Module | None], Tensor] = {}
        self._tokens: Counter[tuple[str, nn.Module | None]] = Counter()

    def add(self, name: str, module: nn.Module | None, tokens: int, value: Tensor) -> None:
        """Add a sum over ``tokens`` tokens."""
        exact = value.double()
        if (name, module) in self._totals:
            self._totals[name, module] += exact
        else:
            self._totals[name, module] = exact
        self._tokens[name, module] += tokens

    def states(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        """Forward hook of a layer norm."""
        states = output[self.real].float()
        self.add("hidden", None, len(states), states.abs().sum(dim=0))
        self.add("moments", None, len(states), states.T @ states)

    def heads(self, size: int, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """Forward pre-hook of the module that receives the heads' outputs."""
        outputs = inputs[0][self.real].float()
        sizes = outputs.view(len(outputs), -1, size).norm(dim=-1)
        self.add("heads", module, len(sizes), sizes.sum(dim=0))

    def neurons(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """Forward pre-hook of the module that receives the neurons' activations."""
        sizes = inputs[0][self.real].float().abs()
        self.add("neurons", module, len(sizes), sizes.sum(dim=0))

    def importance(self, model: PreTrainedModel) -> Importance:
        """Return the importance, by layer."""
        family, layers = family_of(model), layers_of(model)
        heads = [self._mean("heads", part(layer, family.attention_output)) for layer in layers]
        neurons = [self._mean("neurons", part(layer, family.ffn_out)) for layer in layers]
        return Importance(self._mean("hidden"), heads, neurons, self._mean("moments"))

    def _mean(self, name: str, module: nn.Module | None = None) -> Tensor:
        return (self._totals[name, module] / self._tokens[name, module]).float().cpu()


@contextmanager
def _hooked(model: PreTrainedModel, sums: _Sums) -> Iterator[None]:
    """Add every forward pass within the block to the sums."""
    family, size = family_of(model), head_size(model)
    with ExitStack() as hooks:
        for layer in dict.fromkeys(layers_of(model)):
            heads, neurons = part(layer, family.attention_output), part(layer, family.ffn_out)
            norms = [module for module in layer.modules() if isinstance(module, nn.LayerNorm)]
            for handle in (
                heads.register_forward_pre_hook(partial(sums.heads, size)),
                neurons.register_forward_pre_hook(sums.neurons),
                *(norm.register_forward_hook(sums.states) for norm in norms),
            ):
                hooks.callback(handle.remove)
        yield


def _sample(rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer, seed: int) -> Iterator[Batch]:
    drawn = np.sort(np.random.default_rng(seed).permutation(len(rows))[:SAMPLE])
    encoded = encode_rows((rows[int(index)] for index in drawn), task, tokens)
    for indices in batches_by_length(encoded.lengths, BATCH):
        yield {name: torch.from_numpy(array) for name, array in encoded.batch(indices).items()}
