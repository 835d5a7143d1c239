"""Units to score in tests of criteria."""

import torch

from compress.prune.mask_gradients import LayerUnits


def make_units(gradients, weight=None, batches=None, seed=0):
    """Return units with these gradients (rows, units), every row a batch of its own unless said otherwise."""
    weight = torch.ones(2, gradients.shape[1]) if weight is None else weight
    return LayerUnits(gradients, batches or (1,) * len(gradients), weight, seed)
