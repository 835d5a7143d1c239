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

FAR = -1e9
"""Far below any score and still finite: with minus infinity "zero times minus infinity" would be not a number."""


@dataclass(frozen=True)
class Groups:
    """The rows of a batch; as many as ``len``."""

    row: Tensor
    """The row of each example (examples,): int64, ascending from 0, none left out."""

    @classmethod
    def of(cls, batch: Mapping[str, Tensor]) -> Groups:
        """As the batch's `group` says."""
        if "group" in batch:
            return cls(batch["group"])
        ids = batch["input_ids"]
        return cls(torch.arange(len(ids), device=ids.device))

    @cached_property
    def counts(self) -> Tensor:
        """How many examples each row has (rows,)."""
        return torch.bincount(self.row)

    @cached_property
    def place(self) -> Tensor:
        """Where each example stands among those of its row (examples,), from 0."""
        starts = self.counts.cumsum(dim=0) - self.counts
        return torch.arange(len(self.row), device=self.row.device) - starts[self.row]

    @cached_property
    def there(self) -> Tensor:
        """True where `padded` holds an example (rows, most)."""
        places = torch.arange(int(self.counts.max()), device=self.row.device)
        return places < self.counts[:, None]

    def __len__(self) -> int:
        return len(self.counts)

    def padded(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """The examples of each row side by side: (examples, ...) becomes (rows, most, ...)."""
        beside = values.new_full((*self.there.shape, *values.shape[1:]), fill)
        return beside.index_put((self.row, self.place), values)

    def first(self, values: Tensor) -> Tensor:
        """What the first example of each row has: (examples, ...) becomes (rows, ...)."""
        return values[self.place == 0]

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
        of_row = things.new_zeros(len(self)).index_add_(0, self.row, things)
        return real / (of_row.clamp(min=1) * len(self))[self.row, None]

    def of_examples(self) -> Tensor:
        """What each example weighs (examples,) in a mean over a row's examples and then over rows."""
        return 1.0 / (self.counts * len(self))[self.row]
