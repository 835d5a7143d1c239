"""The word vectors that can learn: those of the pieces that occur in the training rows.

A table of word vectors is half of a small model, and one batch looks up a few hundred of its rows; but the usual
gradient of the table is dense, and the optimizer moves and remembers all of it. The rows of pieces that occur nowhere
have no gradient, ever: here they are left alone, which differs from moving all in one thing, that they do not decay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel


class SparseEmbeddings:
    """Stands in for a table of word vectors at the optimizer: one dense parameter of the rows that learn."""

    def __init__(self, table: nn.Embedding, pieces: NDArray[np.int64]) -> None:
        self.table = table
        self.pieces = torch.from_numpy(pieces).to(table.weight.device)
        self.learning = nn.Parameter(table.weight.data[self.pieces])
        self._places = torch.zeros(len(table.weight), dtype=torch.int64, device=table.weight.device)
        self._places[self.pieces] = torch.arange(len(pieces), device=table.weight.device)

    @contextmanager
    def sparse(self) -> Iterator[None]:
        """Within the block the table's gradient is made of the rows that were looked up, and of nothing else."""
        before, self.table.sparse = self.table.sparse, True
        try:
            yield
        finally:
            self.table.sparse = before

    def collect(self) -> None:
        """Add the table's gradient to that of the rows that learn; after each batch, or its pieces pile up."""
        gradient = self.table.weight.grad
        if gradient is None:
            return
        self.table.weight.grad = None
        places, values = self._places[gradient._indices()[0]], gradient._values()
        if self.learning.grad is None:
            self.learning.grad = torch.zeros_like(self.learning)
        self.learning.grad.index_add_(0, places, values)

    def spread(self) -> None:
        """Write the rows back into the table."""
        with torch.no_grad():
            self.table.weight.index_copy_(0, self.pieces, self.learning)

    def reread(self) -> None:
        """Take the rows from the table, which was set from outside."""
        with torch.no_grad():
            self.learning.copy_(self.table.weight[self.pieces])


def sparse_embeddings(model: PreTrainedModel, pieces: NDArray[np.int64]) -> SparseEmbeddings | None:
    """The rows of a model's word vectors that learn on these pieces; None where the whole table must.

    That is on a GPU, which fills a dense gradient quickly; and where the table is frozen, or used by another part of
    the model too.
    """
    table = model.get_input_embeddings()
    if not isinstance(table, nn.Embedding) or table.weight.device.type != "cpu" or not table.weight.requires_grad:
        return None
    holders = [module for module in model.modules() if _holds(module, table.weight)]
    return SparseEmbeddings(table, pieces) if len(holders) == 1 else None


def _holds(module: nn.Module, parameter: Tensor) -> bool:
    return any(own is parameter for own in module.parameters(recurse=False))
