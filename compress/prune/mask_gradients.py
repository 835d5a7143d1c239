"""Collects the gradients of the loss with respect to masks over heads and FFN neurons, which importance is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from compress.console import Console
from compress.errors import ModelError
from compress.models.encoder_parts import family_of, layer_shapes, layers_of, part
from compress.train.objective import Batch

Loss = Callable[[PreTrainedModel, Batch], Tensor]


@dataclass(frozen=True)
class MaskGradients:
    """Signed gradients of the loss with respect to a mask of ones over the outputs of heads and neurons, by layer.

    Float32 on the CPU, one row per sample: today a sample is a batch of rows.
    """

    heads: list[Tensor]
    """(samples, heads) of each layer."""
    ffn: list[Tensor]
    """(samples, neurons) of each layer."""


def mask_gradient(weight: Tensor, gradient: Tensor, units: int) -> Tensor:
    """Return the gradient of the loss with respect to a mask of ones over each unit: the sum of weight x gradient.

    A head or neuron is removed when the columns that carry it into the output are zero, so these alone decide.

    Args:
        weight: of the output part, (hidden, inputs); its inputs are the units, one after the other.
        gradient: of the loss, same shape.
        units: the number of heads of a layer, or its FFN width.

    Returns:
        Float32 (units,).
    """
    columns = (weight.detach().float() * gradient.float()).sum(dim=0)
    return columns.reshape(units, -1).sum(dim=1)


def collect_mask_gradients(
    model: PreTrainedModel, batches: Sequence[Batch], loss: Loss, console: Console | None = None
) -> MaskGradients:
    """Return the mask gradients of every batch; the model's weights do not change.

    Dropout is off: units that it happens to drop would seem unimportant.
    """
    family = family_of(model)
    shapes, layers = layer_shapes(model), layers_of(model)
    units = [heads for heads, _ in shapes] + [ffn for _, ffn in shapes]
    weights = [part(layer, path).weight for path in (family.attention_output, family.ffn_out) for layer in layers]
    samples: list[list[Tensor]] = [[] for _ in units]
    training = model.training
    model.train(False)
    with (console or Console("quiet")).progress(len(batches), "importance", "batches") as progress:
        for batch in batches:
            gradients = torch.autograd.grad(loss(model, batch), weights)
            for collected, weight, gradient, count in zip(samples, weights, gradients, units, strict=True):
                collected.append(mask_gradient(weight, gradient, count).cpu())
            progress.advance(1)
    model.train(training)
    stacked = [torch.stack(collected) for collected in samples]
    if not all(bool(torch.isfinite(each).all()) for each in stacked):
        raise ModelError(
            "the importance of some heads or neurons is NaN or infinite, because the model's loss or weights are."
        )
    return MaskGradients(stacked[: len(shapes)], stacked[len(shapes) :])
