import torch

from compress.prune.criteria.magnitude import magnitude
from tests.prune.criteria.units import make_units


def test_magnitude_is_the_norm_of_the_columns_of_a_unit():
    weight = torch.tensor([[3.0, 0.0, 1.0, 1.0], [0.0, 4.0, 1.0, 1.0]])
    assert magnitude(make_units(torch.zeros(1, 2), weight)).tolist() == [5.0, 2.0]
