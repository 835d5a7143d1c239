"""Similarity: the texts of a batch lie to each other as they do for the teacher."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss
from torch.utils.checkpoint import checkpoint

from compress.losses.tensor_ops.vector_ops import text_vectors

if TYPE_CHECKING:
    from compress.recipe.loss_schema import Similarity

MAX_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 26}
"""How many angles are held at once: those of 161 texts, of 406 on a card."""
SAME = 1e-6
"""Texts whose squared distance is below this share of the mean one are in one place, and have no direction."""


def similarity(
    student: Mapping[str, Tensor], teacher: Mapping[str, Tensor], batch: Mapping[str, Tensor], settings: Similarity
) -> Tensor:
    """Differences of distances between two texts, and of angles between three, of all texts of the batch.

    ``distance * mean_ij h(d_ij(s) - d_ij(t)) + angle * mean_ijk h(c_ijk(s) - c_ijk(t))``, where d is the distance of
    two texts over the mean one of the batch, c the cosine of the angle at j between i and k, and h Huber's loss
    (``x²/2`` up to one, then ``|x| - 1/2``). Park et al., "Relational Knowledge Distillation", 2019 (arXiv:1904.05068).
    Widths may differ, and nothing is projected: neither moving nor turning nor scaling a space changes it.

    Unlike most losses it depends on which rows share a batch, and a batch of one teaches nothing (of two: no angle).

    Args:
        student: `hidden` (examples, tokens, width).
        teacher: the same, of any width; it gets no gradient.
        batch: `attention_mask` (examples, tokens), one for real tokens. Each example is a text of its own.
        settings: `distance` and `angle`, what both weigh (1 and 2 in the paper).
            `pool`: what stands for a text, its first token's vector or the mean of all.
    """
    ours = _space(text_vectors(student["hidden"], batch, settings.pool))
    with torch.no_grad():
        theirs = _space(text_vectors(teacher["hidden"], batch, settings.pool))
    loss = ours.products.new_zeros(())
    if settings.distance:
        loss = loss + settings.distance * _distance(ours, theirs)
    if settings.angle:
        loss = loss + settings.angle * _angle(ours, theirs)
    return loss


class _Space(NamedTuple):
    """Where texts lie to each other, all (texts, texts)."""

    products: Tensor
    """Of their vectors, from the middle of the batch: differences stay, and rounding is that of their size."""
    distances: Tensor
    inverse: Tensor
    """Of the distances; zero for texts in one place, which have no direction to each other."""


def _space(vectors: Tensor) -> _Space:
    vectors = vectors - vectors.mean(dim=0)
    with torch.autocast(vectors.device.type, enabled=False):  # small differences of large numbers
        products = vectors @ vectors.T
    lengths = products.diagonal()
    squares = lengths[:, None] + lengths - 2 * products
    apart = ~(squares <= SAME * squares.detach().mean())  # what is no number is apart too, so that it is seen
    distances = squares.where(apart, 1.0).sqrt()
    return _Space(products, distances * apart, apart / distances)


def _distance(ours: _Space, theirs: _Space) -> Tensor:
    """Huber's loss of distances over their mean."""
    texts = len(ours.products)
    pairs = max(1, texts * (texts - 1))
    given, wanted = (each.distances / (each.distances.sum() / pairs).clamp(min=SAME) for each in (ours, theirs))
    return smooth_l1_loss(given, wanted, reduction="sum") / pairs


def _angle(ours: _Space, theirs: _Space) -> Tensor:
    """Huber's loss of the cosines of all angles; where there are many, made again for the gradient, a few at a time."""
    texts, device = len(ours.products), ours.products.device
    some = torch.split(
        torch.arange(texts, device=device), max(1, MAX_ELEMENTS.get(device.type, MAX_ELEMENTS["cpu"]) // texts**2)
    )
    spaces = ours.products, ours.inverse, theirs.products, theirs.inverse
    if len(some) == 1:
        total = _angles_at(some[0], *spaces)
    else:
        again = partial(checkpoint, _angles_at, use_reentrant=False, preserve_rng_state=False)  # nothing is random
        total = torch.stack([again(each, *spaces) for each in some]).sum()
    return total / max(1, texts * (texts - 1) * (texts - 2))


def _angles_at(corners: Tensor, products: Tensor, inverse: Tensor, theirs: Tensor, their_inverse: Tensor) -> Tensor:
    ours = _cosines(corners, products, inverse)
    with torch.no_grad():
        wanted = _cosines(corners, theirs, their_inverse)
    return smooth_l1_loss(ours, wanted, reduction="sum")


def _cosines(corners: Tensor, products: Tensor, inverse: Tensor) -> Tensor:
    """``(x_i - x_j)·(x_k - x_j) / |x_i - x_j| |x_k - x_j|`` at each corner j (corners, texts, texts)."""
    at, own = products[corners], products.diagonal()[corners]
    dots = products - at[:, :, None] - at[:, None, :] + own[:, None, None]
    return dots * inverse[corners][:, :, None] * inverse[corners][:, None, :]
