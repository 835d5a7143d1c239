import itertools

import torch

from compress.prune.criteria.fisher import fisher
from compress.prune.criteria.kwon import exchange
from tests.prune.criteria.units import make_units


def cost(gradients, kept):
    removed = sorted(set(range(gradients.shape[1])) - set(kept))
    return float(gradients[:, removed].sum(dim=1).square().mean())


def test_two_units_that_cancel_are_removed_together():
    gradients = torch.tensor([[2.0, -2.0, 1.0, 1.0], [2.0, -2.0, 1.0, 1.0]])
    assert exchange(make_units(gradients), [0, 1]) == [2, 3]


def test_exchange_keeps_the_number_and_never_costs_more():
    gradients = torch.randn(40, 9, generator=torch.Generator().manual_seed(0))
    start = fisher(make_units(gradients)).topk(4).indices.tolist()
    kept = exchange(make_units(gradients), start)
    assert kept == sorted(set(kept))
    assert len(kept) == 4
    best = min(cost(gradients, each) for each in itertools.combinations(range(9), 4))
    assert best <= cost(gradients, kept) < cost(gradients, start)
    for removed, other in itertools.product(set(range(9)) - set(kept), kept):  # no further exchange helps
        assert cost(gradients, [*(set(kept) - {other}), removed]) >= cost(gradients, kept) - 1e-6


def test_nothing_to_exchange():
    gradients = torch.ones(3, 4)
    assert exchange(make_units(gradients), [0, 1, 2, 3]) == [0, 1, 2, 3]
    assert exchange(make_units(gradients), [0, 1]) == [0, 1]
