"""Diagonal Fisher importance.

Theis et al., "Faster gaze prediction with dense networks and Fisher pruning", 2018 (arXiv:1801.05787).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from compress.prune.mask_gradients import LayerUnits


def fisher(units: LayerUnits) -> Tensor:
    """Return the mean over rows of each unit's squared mask gradient (units,).

    At a minimum of the loss the first-order change is zero on average, and half of this is the second-order change. A
    unit that helps some rows and harms others counts, other than with `taylor`.
    """
    return units.gradients.square().mean(dim=0)
