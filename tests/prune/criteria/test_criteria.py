from pkgutil import resolve_name

import torch

from compress.prune.criteria import CRITERIA
from tests.prune.criteria.units import make_units


def test_criteria_return_one_finite_score_per_unit():
    gradients = torch.randn(4, 7, generator=torch.Generator().manual_seed(0))
    for criterion in CRITERIA.values():
        scores = resolve_name(criterion.importance)(make_units(gradients, torch.ones(3, 14)))
        assert scores.shape == (7,)
        assert scores.dtype == torch.float32
        assert bool(torch.isfinite(scores).all())
