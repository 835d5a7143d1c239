from pkgutil import resolve_name

import torch

from compress.prune.criteria import CRITERIA
from compress.prune.criteria.taylor import taylor


def test_taylor_is_the_sum_of_absolute_mask_gradients():
    gradients = torch.tensor([[1.0, -2.0, 0.0], [-1.0, -1.0, 0.5]])
    assert taylor(gradients).tolist() == [2.0, 3.0, 0.5]


def test_criteria_return_one_score_per_unit():
    for criterion in map(resolve_name, CRITERIA.values()):
        scores = criterion(torch.randn(4, 7, generator=torch.Generator().manual_seed(0)))
        assert scores.shape == (7,)
        assert bool(torch.isfinite(scores).all())
