"""Random importance: a baseline that any criterion should beat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from compress.prune.mask_gradients import LayerUnits


def random(units: LayerUnits) -> Tensor:
    """Return a uniform number for each unit (units,), the same for the same seed."""
    return torch.rand(units.gradients.shape[1], generator=torch.Generator().manual_seed(units.seed))
