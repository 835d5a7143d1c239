"""The exchange of units that Kwon et al. add to Fisher importance.

Kwon et al., "A Fast Post-Training Pruning Framework for Transformers", 2022 (arXiv:2204.09656): the mask is searched
with the diagonal of the Fisher information (`fisher`), rearranged within each layer with the layer's whole block, and
the outputs of what stays are fitted to those of the unpruned layer (`compress.prune.least_squares`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from compress.prune.mask_gradients import LayerUnits


def exchange(units: LayerUnits, kept: Sequence[int]) -> list[int]:
    """Return as many indices of units of a layer that are better to keep together, ascending.

    Removing a set of units costs the mean over rows of their squared sum of mask gradients, where effects of removed
    units on a row cancel or add up; importance knows each alone. From ``kept`` on, the pair of a removed and a kept
    unit that lowers this cost most is exchanged, until no pair does, or as many exchanges as the layer has units.
    """
    gradients = units.gradients.double()
    fisher = gradients.T @ gradients
    is_removed = torch.ones(len(fisher), dtype=torch.bool)
    is_removed[list(kept)] = False
    for _ in range(len(fisher)):
        removed, others = is_removed.nonzero().flatten(), (~is_removed).nonzero().flatten()
        if not len(removed) or not len(others):
            break
        change = _changes(fisher, is_removed, removed, others)
        best = divmod(int(change.argmin()), len(others))
        if change[best] >= -1e-9 * fisher.diagonal().sum():
            break
        is_removed[removed[best[0]]], is_removed[others[best[1]]] = False, True
    return (~is_removed).nonzero().flatten().tolist()


def _changes(fisher: Tensor, is_removed: Tensor, removed: Tensor, kept: Tensor) -> Tensor:
    """Return by how much each exchange changes the cost (removed, kept)."""
    joint, alone = fisher @ is_removed.double(), fisher.diagonal()
    returned = alone[removed] - 2 * joint[removed]
    taken = alone[kept] + 2 * joint[kept]
    return returned[:, None] + taken[None, :] - 2 * fisher[removed][:, kept]
