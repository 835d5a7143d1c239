"""Which examples of a batch belong to which row, means in which every row has equal weight, and losses on some rows.

A row can consist of several examples: windows of a long text, choices of a question, a query and its documents. In a
batch without `group`, each example is a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from compress.batch_arrays import GROUP

Tensors = Mapping[str, Tensor]
"""Named arrays of a batch, or outputs of a model."""

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
    def from_batch(cls, batch: Tensors) -> RowGroups:
        """Return the rows given by the batch's `group`, which is best kept on the host wherever the rest is."""
        if isinstance(batch, GroupedBatch):
            return batch.groups
        ids = batch["input_ids"]
        if GROUP not in batch:
            return cls(torch.arange(len(ids), device=ids.device), len(ids), 1)
        counts = torch.bincount(batch[GROUP])
        return cls(batch[GROUP].to(ids.device, non_blocking=True), len(counts), int(counts.max()))

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


def mean_over_tokens(values: Tensor, batch: Tensors) -> Tensor:
    """Return the mean of ``values`` (examples, tokens) over each row's real tokens, then over rows.

    Every row has the same weight whatever its length and number of examples. A mean over all tokens of the batch would
    depend on which rows share it, and so on how a batch is split over processes or accumulation steps.

    Args:
        values: of any float type. Padding has weight zero, so its values must be finite (zero times NaN is NaN), as
            those a model computes there are.
        batch: `attention_mask` (examples, tokens), one for real tokens; `group` where rows are several examples.
    """
    return (values * RowGroups.from_batch(batch).item_weights(batch["attention_mask"])).sum()


def mean_over_examples(values: Tensor, batch: Tensors) -> Tensor:
    """Return the mean of ``values`` (examples,) over each row's examples, then over rows."""
    return (values * RowGroups.from_batch(batch).example_weights()).sum()


def loss_on_subset(
    selected: Tensor, outputs: Tensors, batch: Tensors, loss: Callable[[Tensors, Tensors], Tensor]
) -> Tensor:
    """Return ``loss`` of the selected rows times their share of all rows; zero if no row is selected.

    The other rows count as rows with loss zero, so that the sum over batches is the same however rows are distributed.
    A mean over selected rows alone would give the only selected row of a batch the weight of all its rows.

    Args:
        selected: true for each example (examples,) of a row that counts; equal for all examples of a row. It decides
            what is computed, so it is best kept on the host.
        outputs: model outputs, each (examples, ...).
        batch: the model's batch, each (examples, ...); `group` where rows are several examples.
        loss: (outputs, batch) -> mean over rows.
    """
    if not bool(selected.any()):
        return next(iter(outputs.values()))[:0].sum().float()  # zero, with zero gradients
    if bool(selected.all()):
        return loss(outputs, batch)
    indices = selected.nonzero()[:, 0]
    subset = _select_examples(indices, batch)
    share = RowGroups.from_batch(subset).num_rows / RowGroups.from_batch(batch).num_rows
    return share * loss(_select_examples(indices, outputs), subset)


def _select_examples(indices: Tensor, tensors: Tensors) -> dict[str, Tensor]:
    """Return these examples of every tensor, on whichever device it is; rows are renumbered."""
    subset = {name: tensor[indices.to(tensor.device, non_blocking=True)] for name, tensor in tensors.items()}
    if GROUP in subset:
        subset[GROUP] = torch.unique(subset[GROUP], return_inverse=True)[1]
    return subset
