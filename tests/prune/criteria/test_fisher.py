import torch

from compress.prune.criteria.fisher import fisher
from tests.prune.criteria.units import make_units


def test_fisher_is_the_mean_of_squared_gradients_of_rows():
    gradients = torch.tensor([[1.0, -2.0], [-1.0, 0.0]])
    assert fisher(make_units(gradients, batches=(2,))).tolist() == [1.0, 2.0]
