"""LSTMs as operators of ONNX: the exporter would unroll torch's own over a fixed number of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from compress.errors import ModelError


@contextmanager
def lstm_operators(model: nn.Module) -> Iterator[None]:
    """Replace a model's LSTMs within the block by modules that export to one operator each."""
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.LSTM)]
    for name, lstm in found:
        model.set_submodule(name, _LSTMOperator(lstm))
    try:
        yield
    finally:
        for name, lstm in found:
            model.set_submodule(name, lstm)


def refuse_lstm(model: nn.Module, library: str) -> None:
    """Raise ModelError for a model with an LSTM, which torch.export by itself unrolls over a fixed number of tokens."""
    if any(isinstance(module, nn.LSTM) for module in model.modules()):
        hint = "use a student of it, whose head is linear"
        raise ModelError(f"{library} has no LSTM for rows of any length, and this model's head is a BiLSTM.", hint=hint)


class _LSTMOperator(nn.Module):
    """Exports to what an LSTM of one layer and direction computes; called outside of an export it returns zeros.

    Texts are not cut to their lengths by the operator, since OpenVINO ignores that in the backward direction.
    """

    def __init__(self, lstm: nn.LSTM) -> None:
        super().__init__()
        self.size = lstm.hidden_size
        inputs, recurrent, *biases = (_in_onnx_order(parameter) for parameter in lstm.parameters())
        self.inputs, self.recurrent, self.bias = inputs, recurrent, torch.cat(biases, dim=1)

    def forward(self, states: Tensor) -> tuple[Tensor]:
        """Return the outputs (rows, tokens, size) of states (rows, tokens, width)."""
        rows, tokens, _ = states.shape
        outputs = torch.onnx.ops.symbolic(
            "LSTM",
            (states.transpose(0, 1), self.inputs, self.recurrent, self.bias),
            {"hidden_size": self.size},
            dtype=states.dtype,
            shape=(tokens, 1, rows, self.size),
        )
        return (outputs.squeeze(1).transpose(0, 1),)


def _in_onnx_order(parameter: Tensor) -> Tensor:
    """Return a parameter (1, 4 · size, ...) with the gates in ONNX's order: input, output, forget, cell."""
    into, forget, cell, out = parameter.detach()[None].chunk(4, dim=1)
    return torch.cat([into, out, forget, cell], dim=1)
