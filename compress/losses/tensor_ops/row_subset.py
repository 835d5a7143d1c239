"""Losses on a subset of a batch's rows, as parts of a mean over all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from compress.batch_arrays import GROUP
from compress.losses.tensor_ops.row_groups import RowGroups

Tensors = Mapping[str, Tensor]


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
