"""A narrower hidden size by principal directions, in place of chosen dimensions.

The hidden states of an encoder vary in fewer directions than they have dimensions (Ashkboos et al., "SliceGPT", 2024,
arXiv:2401.15024, cut decoders so). A product with the directions that carry most of their squares narrows whatever
reads or writes hidden states, without loss for what lies within them. Layer norms are the exception: they work on each
dimension by itself, so no change of basis passes through them unharmed.
"""

from __future__ import annotations

import torch

from compress.models.student.slicing import HiddenMap, Importance, norm_gain, top_indices

TIE = 1e-5
"""So much of the mean square prefers the dimensions that slicing would keep, where directions carry nothing."""


def principal_directions(importance: Importance, width: int) -> HiddenMap:
    """The ``width`` principal directions of the hidden states, turned so that they lie next to single dimensions.

    Any rotation within the space of the directions keeps as much of the hidden states. The one that brings them nearest
    to the dimensions which slicing would keep (an orthogonal Procrustes problem) harms the norms least: with all
    directions kept it gives the teacher itself, and where some dimensions are always zero it cuts just these.
    """
    kept = top_indices(importance.hidden, width)
    moments = importance.moments.double()
    slices = torch.zeros(len(moments), dtype=torch.double)
    slices[kept] = TIE * moments.diagonal().mean()
    directions = torch.linalg.eigh(moments + slices.diag()).eigenvectors.flip(1)[:, :width]
    left, _, right = torch.linalg.svd(directions[kept].T)
    basis = directions @ left @ right
    return HiddenMap(len(moments), kept, norm_gain(moments, basis), basis.to(importance.moments.dtype))
