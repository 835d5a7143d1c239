"""Which examples of a batch belong to which row, and averages in which every row weighs the same.

A row may be several examples: windows of a long text, choices of a question, a question and its documents. Where a
batch has no `group`, each example is a row of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

MASKED_LOGIT = -1e9
"""Far below any score and still finite: with minus infinity "zero times minus infinity" would be not a number."""


@dataclass(frozen=True)
class RowGroups:
    """The rows of a batch. How many and how large they are the host knows, so that nothing here waits for a device."""

    row: Tensor
    """The row of each example (examples,): int64, ascending from 0, none left out."""
    rows: int
    most: int
    """How many examples the largest row has."""

    @classmethod
    def of(cls, batch: Mapping[str, Tensor]) -> RowGroups:
        """As the batch's `group` says, which is best on the host, wherever the rest is."""
        if isinstance(batch, GroupedBatch):
            return batch.groups
        ids = batch["input_ids"]
        if "group" not in batch:
            return cls(torch.arange(len(ids), device=ids.device), len(ids), 1)
        return cls.numbered(batch["group"], ids.device)

    @classmethod
    def numbered(cls, group: Tensor, device: torch.device) -> RowGroups:
        """By the number of each example's row (examples,), for tensors on a device."""
        counts = torch.bincount(group)
        return cls(group.to(device, non_blocking=True), len(counts), int(counts.max()))

    @cached_property
    def counts(self) -> Tensor:
        """How many examples each row has (rows,)."""
        return self.row.new_zeros(self.rows).index_add_(0, self.row, torch.ones_like(self.row))

    @cached_property
    def starts(self) -> Tensor:
        """The first example of each row (rows,)."""
        return self.counts.cumsum(dim=0) - self.counts

    @cached_property
    def place(self) -> Tensor:
        """Where each example stands among those of its row (examples,), from 0."""
        return torch.arange(len(self.row), device=self.row.device) - self.starts[self.row]

    @cached_property
    def there(self) -> Tensor:
        """True where `padded` holds an example (rows, most)."""
        return torch.arange(self.most, device=self.row.device) < self.counts[:, None]

    def padded(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """The examples of each row side by side: (examples, ...) becomes (rows, most, ...)."""
        beside = values.new_full((self.rows, self.most, *values.shape[1:]), fill)
        return beside.index_put((self.row, self.place), values)

    def first(self, values: Tensor) -> Tensor:
        """What the first example of each row has: (examples, ...) becomes (rows, ...)."""
        return values[self.starts]

    def mean(self, values: Tensor) -> Tensor:
        """The mean over each row's examples: (examples, ...) becomes (rows, ...)."""
        counts = self.counts.view(-1, *(1 for _ in values.shape[1:]))
        return self.padded(values).sum(dim=1) / counts

    def weights(self, counted: Tensor) -> Tensor:
        """What each thing weighs in a mean over a row's counted things and then over rows.

        ``counted`` (examples, things) is one or true for what counts. A row without anything counted weighs nothing,
        and the others weigh no more for it, so that a batch may be split anywhere.
        """
        real = counted.float()
        things = real.sum(dim=1)
        of_row = things.new_zeros(self.rows).index_add_(0, self.row, things)
        return real / (of_row.clamp(min=1) * self.rows)[self.row, None]

    def of_examples(self) -> Tensor:
        """What each example weighs (examples,) in a mean over a row's examples and then over rows."""
        return 1.0 / (self.counts * self.rows)[self.row]


class GroupedBatch(dict[str, Tensor]):
    """A batch whose groups are made once for all of its losses."""

    @cached_property
    def groups(self) -> RowGroups:
        """Made when the first loss asks."""
        return RowGroups.of(dict(self))
