"""How much each hidden dimension, head and FFN neuron of a model does, seen on a sample of training rows.

Muralidharan et al., "Compact Language Models via Pruning and Knowledge Distillation" (Minitron), 2024
(arXiv:2407.14679): activations alone, no gradients. A hidden dimension counts by the mean size of what the layer norms
give it, a head by the norm of its output, a neuron by the mean size of its activation.
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
from compress.train.core.distributed import Processes
from compress.train.objective import Batch

SAMPLE = 512
"""Training rows that are looked at."""
BATCH = 32


def importance_for_student(
    student: Student,
    teacher: PreTrainedModel,
    rows: Sequence[Row],
    task: TaskInfo,
    tokens: TextTokenizer,
    seed: int,
) -> Importance | None:
    """What `build_student` needs to know of the model it cuts; None where it cuts none."""
    if not (changes_shape(student) if student.source else is_narrowed(teacher.config, student)):
        return None
    origin = source_model(teacher, student, task, seed)
    if not is_narrowed(origin.config, student):
        return None
    device = origin.device
    nn.Module.to(origin, Processes().device)
    found = measure_activations(origin, _sample(rows, task, tokens, seed))
    nn.Module.to(origin, device)
    return found


def measure_activations(model: PreTrainedModel, batches: Iterable[Batch]) -> Importance:
    """Importance by means over all real pieces of the batches: padding never counts, and dropout is off."""
    family, sums = family_of(model), _Sums()
    training = model.training
    model.train(False)
    with torch.no_grad(), _watched(model, sums):
        for batch in batches:
            arrays = {name: batch[name].to(model.device) for name in family.inputs}
            sums.real = arrays["attention_mask"].bool()
            base_of(model)(**arrays)
    model.train(training)
    found = sums.importance(model)
    if not all(bool(torch.isfinite(each).all()) for each in (found.moments, *found.heads, *found.neurons)):
        raise ModelError("the importance of some parts is not a number: the teacher's weights are not.")
    return found


class _Sums:
    """What hooks add up over pieces: by the module that they watch, and of layer norms, which count alike, together."""

    real: Tensor
    """(rows, pieces): which of the current batch are no padding."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, nn.Module | None], Tensor] = {}
        self._pieces: Counter[tuple[str, nn.Module | None]] = Counter()

    def add(self, what: str, module: nn.Module | None, pieces: int, value: Tensor) -> None:
        """Add the sum over so many pieces."""
        exact = value.double()
        if (what, module) in self._totals:
            self._totals[what, module] += exact
        else:
            self._totals[what, module] = exact
        self._pieces[what, module] += pieces

    def states(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        """A hook on a layer norm."""
        states = output[self.real].float()
        self.add("hidden", None, len(states), states.abs().sum(dim=0))
        self.add("moments", None, len(states), states.T @ states)

    def heads(self, size: int, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """A hook on the part that takes the heads' outputs."""
        outputs = inputs[0][self.real].float()
        sizes = outputs.view(len(outputs), -1, size).norm(dim=-1)
        self.add("heads", module, len(sizes), sizes.sum(dim=0))

    def neurons(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """A hook on the part that takes the neurons' activations."""
        sizes = inputs[0][self.real].float().abs()
        self.add("neurons", module, len(sizes), sizes.sum(dim=0))

    def importance(self, model: PreTrainedModel) -> Importance:
        """All of it, by depth."""
        family, layers = family_of(model), layers_of(model)
        heads = [self._mean("heads", part(layer, family.attention_output)) for layer in layers]
        neurons = [self._mean("neurons", part(layer, family.ffn_out)) for layer in layers]
        return Importance(self._mean("hidden"), heads, neurons, self._mean("moments"))

    def _mean(self, what: str, module: nn.Module | None = None) -> Tensor:
        return (self._totals[what, module] / self._pieces[what, module]).float().cpu()


@contextmanager
def _watched(model: PreTrainedModel, sums: _Sums) -> Iterator[None]:
    """Within the block, every forward pass adds to the sums."""
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
