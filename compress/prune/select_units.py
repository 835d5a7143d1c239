"""What to cut: first-order Taylor importance, and the choice of what stays. Pure functions of tensors.

Molchanov et al., "Importance Estimation for Neural Network Pruning", 2019 (arXiv:1906.10771); for heads Michel et al.,
"Are Sixteen Heads Really Better than One?", 2019 (arXiv:1905.10650).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def group_importance(weight: Tensor, gradient: Tensor, groups: int) -> Tensor:
    """How much the loss would change, to first order, without each group: |sum of w g|, float32 (groups,).

    A head or a neuron is gone when the columns that carry it into the output are zero, so these alone decide. The sum
    is taken before the absolute value: with |w g| summed instead, weights whose effects cancel look important, most of
    all in low layers. On MiniLM fine-tuned on 6,000 rows of SST-2 (84.3 % on dev, one seed), half of the heads and
    three quarters of the neurons cut and nothing recovered left 80.3 % this way and 72.1 % that way.

    Args:
        weight: of the output part, (hidden, inputs); its inputs are the groups, one after the other.
        gradient: of the loss of one batch, same shape.
        groups: how many there are: heads of a layer, or for neurons its FFN width.
    """
    columns = (weight.detach().float() * gradient.float()).sum(dim=0)
    return columns.reshape(groups, -1).sum(dim=1).abs()


def select_units(importances: Sequence[Tensor], removed: float, block: int = 1, even: bool = False) -> list[list[int]]:
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
        return [kept for each in importances for kept in select_units([each], removed, block)]
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


def max_removable(counts: Sequence[int], block: int = 1, even: bool = False) -> float:
    """The largest share of groups that can go while every layer keeps a block."""
    if even:
        return min(1.0 - min(block, count) / count for count in counts)
    return 1.0 - sum(min(block, count) for count in counts) / sum(counts)


def ratio_for_parameters(left: float, removable: int, fixed: int) -> float:
    """The share to remove of all heads and neurons alike, so that ``left`` of the layers' parameters stay.

    Args:
        left: share of parameters that stays, fixed ones included.
        removable: parameters that belong to a head or a neuron.
        fixed: parameters that stay whatever goes (biases of the outputs, normalization).

    A result above 1 says that the fixed ones alone are more than that.
    """
    return (1.0 - left) * (removable + fixed) / removable
