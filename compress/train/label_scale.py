"""The scale of the numbers that a regression learns: their mean, and their spread as the unit.

An update moves a weight by about the learning rate, whatever the size of the gradient: outputs that begin near zero
would hardly come near labels such as 50,000, and squared errors of that size would drown all other losses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from compress.model_folder.model_info import TaskInfo
from compress.models.load_save import output_layer
from compress.tasks import kind_of
from compress.tasks.base import Row

ROUNDING = 1e-9


@dataclass(frozen=True)
class LabelScale:
    """The mean and the standard deviation of the labels of train."""

    center: float
    spread: float

    def outputs(self, standard: Tensor) -> Tensor:
        """Return outputs of a last layer in the unit of the labels; further ones than the first are left as they are.

        These weigh windows of long texts.
        """
        first = standard[..., :1].float() * self.spread + self.center
        return torch.cat([first, standard[..., 1:].float()], dim=-1)

    def layer(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last layer with these outputs of one with standard outputs."""
        weight, bias = weight.clone(), bias.clone()
        weight[0] *= self.spread
        bias[0] = bias[0] * self.spread + self.center
        return weight, bias

    def standard_layer(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last layer with standard outputs of one with outputs in the unit of the labels."""
        weight, bias = weight.clone(), bias.clone()
        weight[0] /= self.spread
        bias[0] = (bias[0] - self.center) / self.spread
        return weight, bias

    @contextmanager
    def learnt_by(self, model: PreTrainedModel) -> Iterator[None]:
        """Let the last layer learn standard outputs, while the model's own keep the unit of the labels.

        A head that was never trained, whose biases are all zero, begins with the mean.
        """
        last = output_layer(model)
        assert last is not None
        with torch.no_grad():
            if last.bias.any():
                _set(last, self.standard_layer(last.weight, last.bias))
        hook = last.register_forward_hook(lambda module, inputs, standard: self.outputs(standard))
        try:
            yield
        finally:
            hook.remove()
            with torch.no_grad():
                _set(last, self.layer(last.weight, last.bias))


def _set(layer: torch.nn.Linear, values: tuple[Tensor, Tensor]) -> None:
    layer.weight.copy_(values[0])
    layer.bias.copy_(values[1])


def label_scale(rows: Iterable[Row], task: TaskInfo) -> LabelScale | None:
    """Return the scale of the labels of these rows; None for tasks whose labels are no numbers."""
    if not kind_of(task).loss.of_numbers:
        return None
    labels = np.fromiter((row["label"] for row in rows), np.float64)
    if not labels.size:
        return None
    spread = float(labels.std())
    is_constant = spread <= ROUNDING * float(np.abs(labels).max())  # equal numbers may have a mean beside them
    return LabelScale(float(labels.mean()), 1.0 if is_constant else spread)
