"""Losses on some rows of a batch, as parts of a mean over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from compress.losses.tensor_ops.row_groups import RowGroups

Tensors = Mapping[str, Tensor]


def loss_on_subset(
    chosen: Tensor, outputs: Tensors, batch: Tensors, loss: Callable[[Tensors, Tensors], Tensor]
) -> Tensor:
    """``loss`` of the chosen rows alone, times their share of all rows; zero where none is chosen.

    The others count as rows that cost nothing. So the sum over batches is the same however rows are split into them; a
    mean over the chosen ones would give the only one of its batch the weight of all.

    Args:
        chosen: true for each example (examples,) of a row that counts; the same for all examples of a row. It decides
            what is computed, so it is best on the host.
        outputs: of the model, each (examples, ...).
        batch: as the model was given it, each (examples, ...); `group` where rows are several examples.
        loss: (outputs, batch) -> mean over rows.
    """
    if not bool(chosen.any()):
        return next(iter(outputs.values()))[:0].sum().float()  # zero, with gradients that are zero
    if bool(chosen.all()):
        return loss(outputs, batch)
    places = chosen.nonzero()[:, 0]
    fewer = _of_examples(places, batch)
    share = RowGroups.of(fewer).rows / RowGroups.of(batch).rows
    return share * loss(_of_examples(places, outputs), fewer)


def _of_examples(places: Tensor, tensors: Tensors) -> dict[str, Tensor]:
    """These examples of everything, wherever it is; rows are numbered anew."""
    picked = {name: tensor[places.to(tensor.device, non_blocking=True)] for name, tensor in tensors.items()}
    if "group" in picked:
        picked["group"] = torch.unique(picked["group"], return_inverse=True)[1]
    return picked
