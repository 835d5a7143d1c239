"""A batch of packed sequences, as `PackedExamples` makes them."""

import torch
from torch import Tensor

FIRST, SIZE = 5, 90
"""Ids of words: from the first after the special ones, up to the size of the vocabulary."""
MASK = 4


def packed_batch(rows: int = 4, pieces: int = 12, padded: int = 3) -> dict[str, Tensor]:
    """The last row ends in padding."""
    ids = torch.randint(FIRST, SIZE, (rows, pieces), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[:, -1] = 2, 3
    real = torch.ones_like(ids)
    real[-1, -padded:] = 0
    maskable = real * (ids >= FIRST)
    return {
        "input_ids": ids * real,
        "attention_mask": real,
        "token_type_ids": torch.zeros_like(ids),
        "maskable": maskable,
        "word_start": maskable,
        "index": torch.arange(rows),
    }


def with_other_padding(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same sequences, padded to more pieces."""
    wider = {name: torch.nn.functional.pad(array, (0, 5)) for name, array in batch.items() if array.ndim == 2}
    return {**batch, **wider}
