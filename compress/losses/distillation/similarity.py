"""Similarity: distances and angles between the texts of a batch match the teacher's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss
from torch.utils.checkpoint import checkpoint

from compress.losses.tensor_ops.row_groups import Tensors
from compress.losses.tensor_ops.vector_ops import text_vectors

if TYPE_CHECKING:
    from compress.recipe.loss_schema import Similarity

MAX_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 26}
"""Angles per chunk: those of 161 texts on a CPU, of 406 on a GPU."""
COINCIDENT = 1e-6
"""Texts whose squared distance is below this share of the mean coincide; there is no direction between them."""


def similarity(student: Tensors, teacher: Tensors, batch: Tensors, settings: Similarity) -> Tensor:
    """Return the differences of distances between two texts and of angles between three, over the texts of the batch.

    ``distance * mean_ij h(d_ij(s) - d_ij(t)) + angle * mean_ijk h(c_ijk(s) - c_ijk(t))``, where d is the distance of
    two texts divided by the batch's mean distance, c the cosine of the angle at j between i and k, and h Huber's loss
    (``x²/2`` up to one, then ``|x| - 1/2``). Park et al., "Relational Knowledge Distillation", 2019 (arXiv:1904.05068).
    Widths may differ without a projection: translation, rotation and scaling of a space do not change it.

    Unlike most losses it depends on which rows share a batch, and is zero for a batch of one text (a
    batch of two has no angle).

    Args:
        student: `hidden` (examples, tokens, width).
        teacher: the same, of any width; it gets no gradient.
        batch: `attention_mask` (examples, tokens), one for real tokens. Each example is a text.
        settings: `distance` and `angle`, the weights of both parts (1 and 2 in the paper).
            `pool`: the vector of a text, that of its first token or the mean of all.
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
    """Relative positions of texts, each (texts, texts)."""

    products: Tensor
    """Inner products of centred vectors: differences are unchanged, and rounding errors are relative to them."""
    distances: Tensor
    inverse: Tensor
    """One over the distance; zero for texts that coincide."""


def _space(vectors: Tensor) -> _Space:
    vectors = vectors - vectors.mean(dim=0)
    with torch.autocast(vectors.device.type, enabled=False):  # these are small differences of large numbers
        products = vectors @ vectors.T
    lengths = products.diagonal()
    squares = lengths[:, None] + lengths - 2 * products
    apart = ~(squares <= COINCIDENT * squares.detach().mean())  # NaN counts as apart, so that it propagates
    distances = squares.where(apart, 1.0).sqrt()
    return _Space(products, distances * apart, apart / distances)


def _distance(ours: _Space, theirs: _Space) -> Tensor:
    """Return Huber's loss of distances divided by their mean."""
    texts = len(ours.products)
    pairs = max(1, texts * (texts - 1))
    student, teacher = (
        space.distances / (space.distances.sum() / pairs).clamp(min=COINCIDENT) for space in (ours, theirs)
    )
    return smooth_l1_loss(student, teacher, reduction="sum") / pairs


def _angle(ours: _Space, theirs: _Space) -> Tensor:
    """Return Huber's loss of the cosines of all angles; large batches are recomputed in chunks for the gradient."""
    texts, device = len(ours.products), ours.products.device
    corners_per_chunk = max(1, MAX_ELEMENTS.get(device.type, MAX_ELEMENTS["cpu"]) // texts**2)
    chunks = torch.split(torch.arange(texts, device=device), corners_per_chunk)

    def loss(corners: Tensor) -> Tensor:
        student = _cosines(corners, ours)
        with torch.no_grad():
            teacher = _cosines(corners, theirs)
        return smooth_l1_loss(student, teacher, reduction="sum")

    if len(chunks) == 1:
        total = loss(chunks[0])
    else:
        parts = [checkpoint(loss, corners, use_reentrant=False, preserve_rng_state=False) for corners in chunks]
        total = torch.stack(parts).sum()
    return total / max(1, texts * (texts - 1) * (texts - 2))


def _cosines(corners: Tensor, space: _Space) -> Tensor:
    """Return ``(x_i - x_j)·(x_k - x_j) / |x_i - x_j| |x_k - x_j|`` at each corner j (corners, texts, texts)."""
    products, inverse = space.products, space.inverse
    rows, squares = products[corners], products.diagonal()[corners]
    dots = products - rows[:, :, None] - rows[:, None, :] + squares[:, None, None]
    return dots * inverse[corners][:, :, None] * inverse[corners][:, None, :]
