"""What to cut: first-order Taylor importance, and the choice of what stays. Pure functions of tensors.

Molchanov et al., "Importance Estimation for Neural Network Pruning", 2019 (arXiv:1906.10771): to first order, setting a
weight w to zero changes the loss by w times its gradient g. A head or a neuron is a group of weights that go together;
its importance is the sum of |w g| over them, added up over batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Slice:
    """A weight with its gradient, and the dimension along which groups lie one after the other."""

    weight: Tensor
    gradient: Tensor
    dim: int


def group_importance(slices: Sequence[Slice], groups: int) -> Tensor:
    """Sum of |w g| for each group, float32 (groups,).

    Args:
        slices: everything that a group is made of; each is cut along its dimension into ``groups`` equal parts.
        groups: how many there are (heads of a layer; for neurons, its FFN width).
    """
    total = torch.zeros(groups)
    for each in slices:
        product = (each.weight.detach().float() * each.gradient.float()).abs().movedim(each.dim, 0)
        total += product.reshape(groups, -1).sum(dim=1).cpu()
    return total


def choose(importances: Sequence[Tensor], removed: float, block: int = 1, even: bool = False) -> list[list[int]]:
    """The groups that stay, by layer and in order; every layer keeps one block at least.

    Groups are taken a block at a time: within a layer the most important ones form the first block, the next ones the
    second. Blocks are ranked over all layers at once by their mean importance, so that layers lose as much as they can
    spare.

    Args:
        importances: of each layer's groups; layers may have different numbers of them.
        removed: share of all groups to remove.
        block: how many groups stay or go together (a multiple of it stays, or everything does).
        even: remove the same share from every layer instead.
    """
    if even:
        return [kept for each in importances for kept in choose([each], removed, block)]
    orders = [torch.sort(each, descending=True, stable=True).indices for each in importances]
    blocks = [
        (first > 0, -float(each[part].mean()), layer, part)
        for layer, (each, order) in enumerate(zip(importances, orders, strict=True))
        for first, part in enumerate(torch.split(order, block))
    ]
    blocks.sort(key=lambda entry: entry[:3])  # each layer's first block, then the others by importance
    wanted = (1.0 - removed) * sum(map(len, importances))
    kept: list[list[int]] = [[] for _ in importances]
    count = 0
    for later, _, layer, part in blocks:
        if later and abs(count + len(part) - wanted) > abs(count - wanted):
            break
        kept[layer] += part.tolist()
        count += len(part)
    return [sorted(each) for each in kept]


def most_removable(counts: Sequence[int], block: int = 1, even: bool = False) -> float:
    """The largest share of groups that can go while every layer keeps a block."""
    if even:
        return min(1.0 - min(block, count) / count for count in counts)
    return 1.0 - sum(min(block, count) for count in counts) / sum(counts)


def share_removed(left: float, removable: int, fixed: int) -> float:
    """The share to remove of all heads and neurons alike, so that ``left`` of the layers' parameters stay.

    Args:
        left: share of parameters that stays, fixed ones included.
        removable: parameters that belong to a head or a neuron.
        fixed: parameters that stay whatever goes (biases of the outputs, normalization).

    A result above 1 says that the fixed ones alone are more than that.
    """
    return (1.0 - left) * (removable + fixed) / removable
