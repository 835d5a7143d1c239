"""A bidirectional LSTM over the tokens of each text.

Hochreiter and Schmidhuber, 1997; Devlin et al., 2019 (arXiv:1810.04805), section 5.3, put two such layers on the states
of a frozen encoder. The backward direction reads each text from its last token, not from its padding: it is an LSTM on
the text in reverse. No packed sequences are needed, which exporters cannot trace.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

LAYERS = 2


class BiLSTM(nn.Module):
    """Two layers with ``size`` units in each direction; the result has 2 · ``size`` numbers a token."""

    def __init__(self, width: int, size: int) -> None:
        """``width`` is that of the states that are read."""
        super().__init__()
        widths = [width, *[2 * size] * (LAYERS - 1)]
        self.forwards = nn.ModuleList(nn.LSTM(width, size, batch_first=True) for width in widths)
        self.backwards = nn.ModuleList(nn.LSTM(width, size, batch_first=True) for width in widths)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return (rows, tokens, 2 · size) of states (rows, tokens, width) and a mask that is 1 before the padding."""
        mirror = mirrored_positions(mask)
        for ahead, back in zip(self.forwards, self.backwards, strict=True):
            from_end = back(_gather(states, mirror))[0]
            states = torch.cat([ahead(states)[0], _gather(from_end, mirror)], dim=-1)
        return states


def mirrored_positions(mask: Tensor) -> Tensor:
    """Return where each token of the texts in reverse stands (rows, tokens); padding stays where it is."""
    positions = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask.bool(), mask.sum(dim=1, keepdim=True) - 1 - positions, positions)


def _gather(states: Tensor, positions: Tensor) -> Tensor:
    return states.gather(1, positions[..., None].expand_as(states))
