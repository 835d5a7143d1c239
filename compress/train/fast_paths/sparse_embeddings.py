"""Sparse gradients and optimizer states for word embeddings: only pieces that occur in the training rows are updated.

The embedding table is half of a small model, and one batch looks up a few hundred of its rows; but its default gradient
is dense, and the optimizer updates and stores state for all of it. Rows of pieces that never occur have no gradient:
here they are not updated, which differs from updating all rows in one respect only: weight decay does not apply.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel


class SparseEmbeddings:
    """Replaces an embedding table in the optimizer by one dense parameter of the rows that are trained."""

    def __init__(self, table: nn.Embedding, pieces: NDArray[np.int64]) -> None:
        self.table = table
        self.pieces = torch.from_numpy(pieces).to(table.weight.device)
        self.trained = nn.Parameter(table.weight.data[self.pieces])
        self._rows = torch.zeros(len(table.weight), dtype=torch.int64, device=table.weight.device)
        self._rows[self.pieces] = torch.arange(len(pieces), device=table.weight.device)

    @contextmanager
    def sparse(self) -> Iterator[None]:
        """Give the table sparse gradients within the block."""
        before, self.table.sparse = self.table.sparse, True
        try:
            yield
        finally:
            self.table.sparse = before

    def collect(self, weight: Tensor) -> None:
        """Add the gradient of the table's weight, or of a replica's, to that of the trained rows.

        Call after each batch, else gradients pile up.
        """
        gradient = weight.grad
        if gradient is None:
            return
        weight.grad = None
        rows, values = self._rows[gradient._indices()[0]], gradient._values()
        if self.trained.grad is None:
            self.trained.grad = torch.zeros_like(self.trained)
        self.trained.grad.index_add_(0, rows, values)

    def spread(self) -> None:
        """Write the trained rows back into the table."""
        with torch.no_grad():
            self.table.weight.index_copy_(0, self.pieces, self.trained)

    def reload(self) -> None:
        """Read the rows from the table after it was changed elsewhere."""
        with torch.no_grad():
            self.trained.copy_(self.table.weight[self.pieces])


def sparse_embeddings(model: PreTrainedModel, pieces: NDArray[np.int64]) -> SparseEmbeddings | None:
    """Return the trained rows of a model's word embeddings for these pieces; None where the full table is trained.

    That is on a GPU, where dense gradients are fast, and where the table is frozen or shared with another module.
    """
    table = model.get_input_embeddings()
    if not isinstance(table, nn.Embedding) or table.weight.device.type != "cpu" or not table.weight.requires_grad:
        return None
    users = [module for module in model.modules() if _owns(module, table.weight)]
    return SparseEmbeddings(table, pieces) if len(users) == 1 else None


def _owns(module: nn.Module, parameter: Tensor) -> bool:
    return any(own is parameter for own in module.parameters(recurse=False))
