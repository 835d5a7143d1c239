"""Measuring the importance of heads and neurons on batches of the task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from compress.console import Console
from compress.errors import ModelError
from compress.models.families import family_of, layer_shapes, layers_of, part
from compress.prune.score import group_importance
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
    family = family_of(model)
    for layer, heads, neurons in zip(layers_of(model), found.heads, found.ffn, strict=True):
        for totals, path in ((heads, family.attention_output), (neurons, family.ffn_out)):
            weight = part(layer, path).weight
            if weight.grad is None:
                raise ModelError("the loss does not reach every layer, so importance cannot be measured.")
            totals.add_(group_importance(weight, weight.grad, len(totals)).cpu())
