"""Importance of hidden dimensions, heads and FFN neurons from activations on a sample of training rows.

Muralidharan et al., "Compact Language Models via Pruning and Knowledge Distillation" (Minitron), 2024
(arXiv:2407.14679): activations only, no gradients. Importance is the mean absolute layer norm output of a hidden
dimension, the norm of a head's output, and the mean absolute activation of a neuron.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.data.encode import batches_by_length, encode_rows
from compress.data.tokenizer import TextTokenizer
from compress.model_folder.model_info import TaskInfo
from compress.model_shapes import changes_shape
from compress.models.encoder_parts import base_of, family_of, head_size, layers_of, part
from compress.models.student.build_student import is_narrowed, source_model
from compress.models.student.slicing import Importance
from compress.recipe.student_schema import Student
from compress.tasks.base import Row
from compress.train.core.distributed import current_processes, returned
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
    if student.source and not changes_shape(student):
        return None
    origin = source_model(teacher, student, task, seed)
    return sample_importance(origin, rows, task, tokens, seed) if is_narrowed(origin.config, student) else None


def sample_importance(
    model: PreTrainedModel, rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer, seed: int
) -> Importance:
    """Return the importance of a model's parts on a sample of rows."""
    with returned(model):
        nn.Module.to(model, current_processes().device)
        return measure_activations(model, _sample(rows, task, tokens, seed))


def count_pieces(size: int, rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer) -> Tensor:
    """Return how often each of ``size`` word pieces occurs in rows (pieces,)."""
    return torch.from_numpy(encode_rows(rows, task, tokens).piece_counts(size))


def measure_activations(model: PreTrainedModel, batches: Iterable[Batch]) -> Importance:
    """Return the importance averaged over all real tokens of the batches, without padding and dropout."""
    family, layers, size, means = family_of(model), layers_of(model), head_size(model), _Means()
    heads = [part(layer, family.attention_output) for layer in layers]
    neurons = [part(layer, family.ffn_out) for layer in layers]
    norms = [
        module for layer in dict.fromkeys(layers) for module in layer.modules() if isinstance(module, nn.LayerNorm)
    ]
    training = model.training
    model.train(False)
    with torch.no_grad(), ExitStack() as hooks:
        for handle in (
            *(
                module.register_forward_pre_hook(means.hook(module, partial(_norms, size)))
                for module in dict.fromkeys(heads)
            ),
            *(module.register_forward_pre_hook(means.hook(module, _sizes)) for module in dict.fromkeys(neurons)),
            *(norm.register_forward_hook(means.hook("hidden", _sizes)) for norm in norms),
            *(norm.register_forward_hook(means.hook("moments", _products)) for norm in norms),
        ):
            hooks.callback(handle.remove)
        for batch in batches:
            arrays = {name: batch[name].to(model.device) for name in family.inputs}
            means.real = arrays["attention_mask"].bool()
            base_of(model)(**arrays)
    model.train(training)
    return Importance(
        means["hidden"], [means[each] for each in heads], [means[each] for each in neurons], means["moments"]
    )


class _Means:
    """Means over real tokens, collected by hooks: by module, or by name over several modules."""

    real: Tensor
    """(rows, tokens): true for real tokens of the current batch."""

    def __init__(self) -> None:
        self._sums: dict[nn.Module | str, tuple[Tensor | float, int]] = {}

    def hook(self, key: nn.Module | str, total: Callable[[Tensor], Tensor]) -> Callable[..., None]:
        """Return a hook that adds the ``total`` of the states (tokens, width) that a module receives or returns."""

        def add(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor | None = None) -> None:
            states = (inputs[0] if output is None else output)[self.real].float()
            before, count = self._sums.get(key, (0.0, 0))
            self._sums[key] = before + total(states).double(), count + len(states)

        return add

    def __getitem__(self, key: nn.Module | str) -> Tensor:
        total, count = self._sums[key]
        return (torch.as_tensor(total) / count).float().cpu()


def _sizes(states: Tensor) -> Tensor:
    return states.abs().sum(dim=0)


def _products(states: Tensor) -> Tensor:
    return states.T @ states


def _norms(size: int, states: Tensor) -> Tensor:
    """Return the summed norm of each head's part of the states."""
    norms: Tensor = states.view(len(states), -1, size).norm(dim=-1)
    return norms.sum(dim=0)


def _sample(rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer, seed: int) -> Iterator[Batch]:
    drawn = np.sort(np.random.default_rng(seed).permutation(len(rows))[:SAMPLE])
    encoded = encode_rows(rows, task, tokens)
    chosen = encoded.examples_of(drawn)
    for indices in batches_by_length(encoded.lengths[chosen], BATCH):
        yield {name: torch.from_numpy(array) for name, array in encoded.batch(chosen[indices]).items()}
