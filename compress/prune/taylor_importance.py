"""Measuring the importance of heads and neurons on batches of the task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from compress.console import Console
from compress.errors import ModelError
from compress.models.encoder_parts import family_of, layer_shapes, layers_of, part
from compress.prune.select_units import group_importance
from compress.train.objective import Batch

Loss = Callable[[PreTrainedModel, Batch], Tensor]


@dataclass(frozen=True)
class Importance:
    """Of each layer's heads and FFN neurons."""

    heads: list[Tensor]
    ffn: list[Tensor]


def measure_importance(
    model: PreTrainedModel, batches: Sequence[Batch], loss: Loss, console: Console | None = None
) -> Importance:
    """Add up first-order Taylor importance over batches; the model's weights stay as they are.

    Dropout is off: what it drops at random would look unimportant.
    """
    family = family_of(model)
    shapes, layers = layer_shapes(model), layers_of(model)
    found = Importance([torch.zeros(heads) for heads, _ in shapes], [torch.zeros(ffn) for _, ffn in shapes])
    totals = [*found.heads, *found.ffn]
    weights = [part(layer, path).weight for path in (family.attention_output, family.ffn_out) for layer in layers]
    training = model.training
    model.train(False)
    with (console or Console("quiet")).progress(len(batches), "importance", "batches") as progress:
        for batch in batches:
            gradients = torch.autograd.grad(loss(model, batch), weights, allow_unused=True)
            for total, weight, gradient in zip(totals, weights, gradients, strict=True):
                if gradient is None:
                    raise ModelError("the loss does not reach every layer, so importance cannot be measured.")
                total.add_(group_importance(weight, gradient, len(total)).cpu())
            progress.advance(1)
    model.train(training)
    if not all(bool(torch.isfinite(total).all()) for total in totals):
        raise ModelError(
            "the importance of some heads or neurons is not a number: the model's loss or weights are not."
        )
    return found
