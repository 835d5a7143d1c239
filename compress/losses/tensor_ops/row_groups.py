"""Which examples of a batch belong to which row, and means in which every row has equal weight.

A row can consist of several examples: windows of a long text, choices of a question, a query and its documents. In a
batch without `group`, each example is a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from compress.batch_arrays import GROUP

MASKED_LOGIT = -1e9
"""Far below any score, yet finite: zero times minus infinity would be NaN."""


@dataclass(frozen=True)
class RowGroups:
    """The rows of a batch. Their number and largest size are known on the host, so no method synchronizes a device."""

    row: Tensor
    """Row index of each example (examples,): int64, ascending from 0 without gaps."""
    num_rows: int
    max_per_row: int
    """Number of examples of the largest row."""

    @classmethod
    def from_batch(cls, batch: Mapping[str, Tensor]) -> RowGroups:
        """Return the rows given by the batch's `group`, which is best kept on the host wherever the rest is."""
        if isinstance(batch, GroupedBatch):
            return batch.groups
        ids = batch["input_ids"]
        if GROUP not in batch:
            return cls(torch.arange(len(ids), device=ids.device), len(ids), 1)
        return cls.from_ids(batch[GROUP], ids.device)

    @classmethod
    def from_ids(cls, group: Tensor, device: torch.device) -> RowGroups:
        """Return the rows given by each example's row index (examples,), for tensors on ``device``."""
        counts = torch.bincount(group)
        return cls(group.to(device, non_blocking=True), len(counts), int(counts.max()))

    @cached_property
    def counts(self) -> Tensor:
        """Number of examples of each row (rows,)."""
        return self.row.new_zeros(self.num_rows).index_add_(0, self.row, torch.ones_like(self.row))

    @cached_property
    def first_index(self) -> Tensor:
        """Index of each row's first example (rows,)."""
        return self.counts.cumsum(dim=0) - self.counts

    @cached_property
    def index_in_row(self) -> Tensor:
        """Position of each example within its row (examples,), from 0."""
        return torch.arange(len(self.row), device=self.row.device) - self.first_index[self.row]

    def pad(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """Arrange examples by row: (examples, ...) becomes (rows, max_per_row, ...)."""
        padded = values.new_full((self.num_rows, self.max_per_row, *values.shape[1:]), fill)
        return padded.index_put((self.row, self.index_in_row), values)

    def first(self, values: Tensor) -> Tensor:
        """Return the values of each row's first example: (examples, ...) becomes (rows, ...)."""
        return values[self.first_index]

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over each row's examples: (examples, ...) becomes (rows, ...)."""
        counts = self.counts.view(-1, *(1 for _ in values.shape[1:]))
        return self.pad(values).sum(dim=1) / counts

    def item_weights(self, counted: Tensor) -> Tensor:
        """Return the weight of each item in a mean over a row's counted items, then over rows.

        ``counted`` (examples, items) is one or true for items that count. A row without counted items has weight zero
        and the other rows weigh no more because of it, so that a batch can be split anywhere.
        """
        real = counted.float()
        items = real.sum(dim=1)
        per_row = items.new_zeros(self.num_rows).index_add_(0, self.row, items)
        return real / (per_row.clamp(min=1) * self.num_rows)[self.row, None]

    def example_weights(self) -> Tensor:
        """Return the weight of each example (examples,) in a mean over a row's examples, then over rows."""
        return 1.0 / (self.counts * self.num_rows)[self.row]


class GroupedBatch(dict[str, Tensor]):
    """A batch whose row groups are computed once for all losses."""

    @cached_property
    def groups(self) -> RowGroups:
        """The row groups, computed on first use."""
        return RowGroups.from_batch(dict(self))
