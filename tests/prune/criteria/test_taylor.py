import torch

from compress.prune.criteria.taylor import taylor
from tests.prune.criteria.units import make_units


def test_taylor_is_the_sum_over_batches_of_absolute_means():
    gradients = torch.tensor([[1.0, -2.0, 0.0], [-1.0, -1.0, 0.5], [-3.0, 1.0, 0.0]])
    assert taylor(make_units(gradients)).tolist() == [5.0, 4.0, 0.5]
    assert taylor(make_units(gradients, batches=(2, 1))).tolist() == [3.0, 2.5, 0.25]
