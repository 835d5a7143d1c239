"""Losses on some rows of a batch, as parts of a mean over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from compress.losses.groups import Groups

Tensors = Mapping[str, Tensor]


def over_rows(chosen: Tensor, outputs: Tensors, batch: Tensors, loss: Callable[[Tensors, Tensors], Tensor]) -> Tensor:
    """``loss`` of the chosen rows alone, times their share of all rows; zero where none is chosen.

    The others count as rows that cost nothing. So the sum over batches is the same however rows are split into them; a
    mean over the chosen ones would give the only one of its batch the weight of all.

    Args:
        chosen: true for each example (examples,) of a row that counts; the same for all examples of a row.
        outputs: of the model, each (examples, ...).
        batch: as the model was given it, each (examples, ...); `group` where rows are several examples.
        loss: (outputs, batch) -> mean over rows.
    """
    if not bool(chosen.any()):
        return next(iter(outputs.values()))[:0].sum().float()  # zero, with gradients that are zero
    if bool(chosen.all()):
        return loss(outputs, batch)
    fewer = _of_examples(chosen, batch)
    share = len(Groups.of(fewer)) / len(Groups.of(batch))
    return share * loss(_of_examples(chosen, outputs), fewer)


def _of_examples(chosen: Tensor, tensors: Tensors) -> dict[str, Tensor]:
    """The chosen examples of everything; rows are numbered anew."""
    picked = {name: tensor[chosen] for name, tensor in tensors.items()}
    if "group" in picked:
        picked["group"] = torch.unique(picked["group"], return_inverse=True)[1]
    return picked
