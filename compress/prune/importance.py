"""Measuring the importance of heads and neurons on batches of the task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.console import Console
from compress.errors import ModelError
from compress.models.families import Family, family_of, head_size, layer_shapes, layers_of, part
from compress.prune.score import Slice, group_importance
from compress.train.objective import Batch

Loss = Callable[[PreTrainedModel, Batch], Tensor]


@dataclass(frozen=True)
class Importance:
    """Of each layer's heads and FFN neurons."""

    heads: list[Tensor]
    ffn: list[Tensor]


def measure_importance(
    model: PreTrainedModel,
    batches: Iterable[Batch],
    loss: Loss,
    console: Console | None = None,
    total: int | None = None,
) -> Importance:
    """Add up first-order Taylor importance over batches; the model's weights stay as they are.

    Dropout is off: what it drops at random would look unimportant.
    """
    shapes = layer_shapes(model)
    found = Importance([torch.zeros(heads) for heads, _ in shapes], [torch.zeros(ffn) for _, ffn in shapes])
    training = model.training
    model.train(False)
    with (console or Console("quiet")).progress(total, "importance", "batches") as progress:
        for batch in batches:
            model.zero_grad()
            loss(model, batch).backward()  # type: ignore[no-untyped-call]
            _add(found, model)
            progress.advance(1)
    model.zero_grad()
    model.train(training)
    if not all(bool(torch.isfinite(each).all()) for each in (*found.heads, *found.ffn)):
        raise ModelError(
            "the importance of some heads or neurons is not a number: the model's loss or weights are not."
        )
    return found


def _add(found: Importance, model: PreTrainedModel) -> None:
    """Add what the gradients of one batch say."""
    family, size = family_of(model), head_size(model)
    for index, layer in enumerate(layers_of(model)):
        heads, neurons = part(layer, family.attention_output).in_features // size, len(found.ffn[index])
        found.heads[index].add_(group_importance(_attention(layer, family), heads))
        found.ffn[index].add_(group_importance(_ffn(layer, family), neurons))


def _attention(layer: nn.Module, family: Family) -> list[Slice]:
    """What belongs to heads: rows of query, key and value, columns of the output."""
    entering = [path for path in (family.query, family.key, family.value) if path is not None]
    return [
        *(piece for path in entering for piece in _rows(part(layer, path))),
        *_columns(part(layer, family.attention_output)),
    ]


def _ffn(layer: nn.Module, family: Family) -> list[Slice]:
    """What belongs to neurons: rows of the first part, columns of the second."""
    return [*_rows(part(layer, family.ffn_in)), *_columns(part(layer, family.ffn_out))]


def _rows(linear: nn.Linear) -> list[Slice]:
    return [_slice(parameter, 0) for parameter in linear.parameters()]


def _columns(linear: nn.Linear) -> list[Slice]:
    return [_slice(linear.weight, 1)]


def _slice(parameter: Tensor, dim: int) -> Slice:
    if parameter.grad is None:
        raise ModelError("the loss does not reach every layer, so importance cannot be measured.")
    return Slice(parameter, parameter.grad, dim)
