"""Narrows the hidden size by principal directions, in place of selected dimensions.

The hidden states of an encoder vary in fewer directions than they have dimensions (Ashkboos et al., "SliceGPT", 2024,
arXiv:2401.15024, apply this to decoders). Multiplying the weights that read or write hidden states with the directions
of largest mean square narrows them without loss within that space. Layer norms are the exception: they work on single
dimensions, so a change of basis does not commute with them.
"""

import torch

from compress.models.student.slicing import HiddenMap, Importance, norm_gain, top_indices

TIE = 1e-5
"""Share of the mean square that is added to the dimensions slicing would keep, to break ties among empty directions."""


def principal_directions(importance: Importance, width: int) -> HiddenMap:
    """Return the ``width`` principal directions of the hidden states, rotated towards single dimensions.

    Any rotation within the space of the directions keeps as much of the hidden states. The rotation that is nearest to
    the dimensions which slicing would keep (an orthogonal Procrustes problem) changes the norms least: with all
    directions it gives the teacher itself, and where some dimensions are always zero it removes just these.
    """
    kept = top_indices(importance.hidden, width)
    moments = importance.moments.double()
    slices = torch.zeros(len(moments), dtype=torch.double)
    slices[kept] = TIE * moments.diagonal().mean()
    directions = torch.linalg.eigh(moments + slices.diag()).eigenvectors.flip(1)[:, :width]
    left, _, right = torch.linalg.svd(directions[kept].T)
    basis = directions @ left @ right
    return HiddenMap(len(moments), kept, norm_gain(moments, basis), basis.to(importance.moments.dtype))
