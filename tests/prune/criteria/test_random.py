import torch

from compress.prune.criteria.random import random
from tests.prune.criteria.units import make_units


def test_random_depends_on_the_seed_alone():
    one, again, other = (random(make_units(torch.zeros(3, 8), seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
