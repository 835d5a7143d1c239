"""Collects the gradients of the loss with respect to masks over heads and FFN neurons, which importance is made of."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.batch_arrays import GROUP
from compress.console import Console
from compress.errors import ModelError
from compress.models.encoder_parts import family_of, layer_shapes, layers_of, part
from compress.train.objective import Batch

UnitLoss = Callable[[PreTrainedModel, Batch], Tensor]


@dataclass(frozen=True)
class LayerUnits:
    """The heads or the FFN neurons of one layer, and what was collected of them: what criteria score."""

    gradients: Tensor
    """(rows, units) float32: of each row's loss, with respect to a mask of ones over the outputs of the units. Signed;
    to first order the loss of the row changes by minus this when the unit is removed."""
    batches: tuple[int, ...]
    """The numbers of rows that were in one batch, in order."""
    weight: Tensor
    """(hidden, inputs) float32, of the linear layer that reads the units' outputs; each unit's columns are adjacent."""
    seed: int
    """Another one for every layer, and for heads and neurons."""


@dataclass(frozen=True)
class CollectedUnits:
    """The heads and the neurons of each layer, all on the CPU."""

    heads: list[LayerUnits]
    ffn: list[LayerUnits]


def collect_units(
    model: PreTrainedModel, batches: Sequence[Batch], loss: UnitLoss, seed: int = 0, console: Console | None = None
) -> CollectedUnits:
    """Return the mask gradients of every row of the batches; the model's weights do not change.

    One forward and one backward pass a batch, without gradients of weights. Dropout is off: units that it happens to
    drop would seem unimportant.

    Args:
        model: of a prunable family.
        batches: the model's batches, with `group` where a row is several examples.
        loss: a mean over the rows of a batch.
        seed: of criteria that draw.
        console: where progress is shown.
    """
    family, shapes, layers = family_of(model), layer_shapes(model), layers_of(model)
    counts = [heads for heads, _ in shapes] + [ffn for _, ffn in shapes]
    parts = [part(layer, path) for path in (family.attention_output, family.ffn_out) for layer in layers]
    samples: list[list[Tensor]] = [[] for _ in parts]
    training = model.training
    model.train(False)
    with (console or Console("quiet")).progress(len(batches), "importance", "batches") as progress:
        for batch in batches:
            with _masked_inputs(parts, counts) as masks:
                gradients = torch.autograd.grad(loss(model, batch), masks)
            for sample, gradient in zip(samples, gradients, strict=True):
                sample.append(_by_row(gradient.squeeze(1).float(), batch).cpu())
            progress.advance(1)
    model.train(training)
    sizes = tuple(map(len, samples[0]))
    units = [  # each layer's samples are freed once they are joined
        LayerUnits(torch.cat(samples.pop(0)), sizes, module.weight.detach().float().cpu(), 1000 * seed + index)
        for index, module in enumerate(parts)
    ]
    if not all(bool(torch.isfinite(each.gradients).all()) for each in units):
        raise ModelError(
            "the importance of some heads or neurons is NaN or infinite, because the model's loss or weights are."
        )
    return CollectedUnits(units[: len(shapes)], units[len(shapes) :])


@contextmanager
def _masked_inputs(parts: Sequence[nn.Linear], counts: Sequence[int]) -> Iterator[list[Tensor]]:
    """Within the block, a forward pass multiplies the inputs of each part by a mask of ones over its units.

    Yields the masks (examples, 1, units), in the order in which the parts ran; a head's or neuron's outputs are the
    columns of its unit. A unit is removed when these are zero, so the mask's gradient is all that removing it changes.
    """
    masks: list[Tensor] = [torch.empty(0)] * len(parts)

    def hook(index: int, units: int) -> Callable[[nn.Module, tuple[Tensor]], Tensor]:
        def multiply(module: nn.Module, inputs: tuple[Tensor]) -> Tensor:
            mask = inputs[0].new_ones(len(inputs[0]), 1, units).requires_grad_()
            masks[index] = mask
            columns = inputs[0].reshape(*inputs[0].shape[:-1], units, -1)
            return (columns * mask.unsqueeze(-1)).flatten(-2)

        return multiply

    with ExitStack() as hooks:
        for index, (module, units) in enumerate(zip(parts, counts, strict=True)):
            hooks.callback(module.register_forward_pre_hook(hook(index, units)).remove)
        yield masks


def _by_row(gradients: Tensor, batch: Batch) -> Tensor:
    """Return the gradients of each row's own loss (rows, units), given those of the batch's mean of examples."""
    if (group := batch.get(GROUP)) is not None:
        rows = gradients.new_zeros(int(group.max()) + 1, gradients.shape[1])
        gradients = rows.index_add_(0, group.to(gradients.device), gradients)
    return gradients * len(gradients)
