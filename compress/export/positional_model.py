"""A model as ExecuTorch's exporter and quantizer expect it: arrays by position in, a tuple of tensors out."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.export.exporter_config import example_inputs
from compress.runtime.torch_eager import tensors


class PositionalModel(nn.Module):
    """Calls a model with its family's inputs in their order; both orders are known by name."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        sample = example_inputs(model, "executorch")
        self.inputs = tuple(sample)
        with torch.no_grad():
            self.outputs = tuple(tensors(model(**sample)))

    def forward(self, *arrays: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of a padded batch."""
        outputs = self.model(**dict(zip(self.inputs, arrays, strict=True)))
        return tuple(outputs[name] for name in self.outputs)
