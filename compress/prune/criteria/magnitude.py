"""Magnitude importance: how large the weights that read a unit's outputs are. A baseline that reads no data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from compress.prune.mask_gradients import LayerUnits


def magnitude(units: LayerUnits) -> Tensor:
    """Return the Euclidean norm of each unit's columns in the output weight (units,)."""
    columns = units.weight.reshape(len(units.weight), units.gradients.shape[1], -1)
    return columns.square().sum(dim=(0, 2)).sqrt()
