"""The BiLSTM without packed sequences, against torch's own with them."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from compress.models.bilstm import LAYERS, BiLSTM, mirrored_positions


def packed(ours: BiLSTM, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return what torch's bidirectional LSTM with the same weights gives for packed sequences."""
    size = ours.forwards[0].hidden_size
    own = nn.LSTM(states.shape[-1], size, LAYERS, batch_first=True, bidirectional=True)
    weights = {}
    for layer, pair in enumerate(zip(ours.forwards, ours.backwards, strict=True)):
        for lstm, suffix in zip(pair, ("", "_reverse"), strict=True):
            weights |= {f"{name[:-1]}{layer}{suffix}": value for name, value in lstm.state_dict().items()}
    own.load_state_dict(weights)
    sequences = pack_padded_sequence(states, mask.sum(dim=1), batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(own(sequences)[0], batch_first=True)[0]


@pytest.mark.parametrize("lengths", [(6, 6), (6, 1, 3)])
def test_it_computes_what_packed_sequences_give(lengths):
    torch.manual_seed(0)
    ours, states = BiLSTM(8, 3), torch.randn(len(lengths), max(lengths), 8)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    with torch.no_grad():
        given, expected = ours(states, mask), packed(ours, states, mask)
    torch.testing.assert_close(given[mask.bool()], expected[mask.bool()])


def test_padding_stays_where_it_is():
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    assert mirrored_positions(mask).tolist() == [[2, 1, 0, 3, 4], [4, 3, 2, 1, 0]]
