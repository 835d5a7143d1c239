"""Attention that is made by hand gives its own pattern."""

import numpy as np
import pytest
import torch

from compress.probe.head_patterns import PATTERNS, _divergence, _sums
from compress.probe.states import TokenBatch


def _batch() -> TokenBatch:
    """[CLS] the film the film [SEP]: four words, and two of them again."""
    ids = torch.tensor([[2, 5, 6, 5, 6, 3]])
    word_ids = np.array([[-1, 0, 1, 2, 3, -1]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return TokenBatch([0], inputs, np.full((1, 6, 2), -1), word_ids)


@pytest.mark.parametrize(
    ("pattern", "keys"),
    [
        ("first", [0, 0, 0, 0]),
        ("separator", [5, 5, 5, 5]),
        ("itself", [1, 2, 3, 4]),
        ("same word", [3, 4, 1, 2]),
        ("previous word", [None, 1, 2, 3]),
        ("next word", [2, 3, 4, None]),
    ],
)
def test_each_pattern(pattern: str, keys: list[int | None]) -> None:
    batch = _batch()
    attention = torch.zeros(1, 1, 6, 6)
    for query, key in enumerate(keys, 1):
        if key is not None:
            attention[0, 0, query, key] = 1
    asked = torch.from_numpy(batch.word_ids >= 0)
    sums = _sums(attention, batch, asked)[0]
    expected = sum(key is not None for key in keys)
    assert sums[PATTERNS.index(pattern)] == expected
    assert sums[: len(PATTERNS)].sum() == expected
    distances = [abs(key - query) for query, key in enumerate(keys, 1) if key is not None]
    assert sums[-2] == sum(distances)
    assert sums[-1] == pytest.approx(0, abs=1e-5)


def test_divergence_of_equal_and_of_disjoint_heads() -> None:
    rows = torch.zeros(10, 3, 4)
    rows[:, 0, 0] = rows[:, 1, 0] = rows[:, 2, 3] = 1
    found = _divergence([rows])
    assert found[0, 1] == pytest.approx(0, abs=1e-6)
    assert found[0, 2] == pytest.approx(1, abs=1e-6)
    assert np.allclose(found, found.T)
