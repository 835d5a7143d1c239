"""Similarity of the layers of two models, and the layer map that follows from it.

Kornblith et al., "Similarity of Neural Network Representations Revisited", 2019 (arXiv:1905.00414): linear centred
kernel alignment, CKA = |Yᵀ X|² / (|Xᵀ X| |Yᵀ Y|) in Frobenius norms, for centred features. It is 1 for layers that
are a rotation and scaling of each other, near 0 for unrelated layers, and widths may differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from compress.errors import ModelError
from compress.train.distillation.layer_map import Pairs

Features = Sequence[Tensor]
"""The outputs of each layer of a model for the same tokens, each (tokens, width)."""


class LinearCKA:
    """CKA of every student layer with every teacher layer, from sums over tokens, in constant memory."""

    def __init__(self) -> None:
        self._starts: tuple[list[Tensor], list[Tensor]] | None = None
        self._own: tuple[list[Tensor], list[Tensor]] = [], []
        self._between: list[list[Tensor]] = []

    def add(self, student: Features, teacher: Features) -> None:
        """Add tokens; both models must have processed the same ones."""
        if self._starts is None:  # shifted near zero, so that centring later does not lose precision
            self._starts = [layer.float().mean(0) for layer in student], [layer.float().mean(0) for layer in teacher]
        ours, theirs = (list(map(_shifted, *pair)) for pair in zip((student, teacher), self._starts, strict=True))
        own = [layer.T @ layer for layer in ours], [layer.T @ layer for layer in theirs]
        between = [[student_layer.T @ teacher_layer for teacher_layer in theirs] for student_layer in ours]
        if self._between:
            own = _sums(self._own[0], own[0]), _sums(self._own[1], own[1])
            between = [_sums(*rows) for rows in zip(self._between, between, strict=True)]
        self._own, self._between = own, between

    def matrix(self) -> Tensor:
        """Return CKA (student layers, teacher layers); 0 where a layer has the same output for every token."""
        ours, theirs = (_norms(whose, own) for whose, own in zip(("student", "teacher"), self._own, strict=True))
        shared = torch.stack([torch.stack([_squared_norm(sums) for sums in row]) for row in self._between])
        both = ours[:, None] * theirs
        return (shared / both.where(both > 0, 1.0)).where(both > 0, 0.0).cpu()


def align_layers(similarity: Tensor) -> Pairs:
    """Return the non-crossing pairs (student layer, teacher layer) with the largest total similarity.

    Every student layer gets a teacher layer above that of the layer below it; where the student is deeper than the
    teacher, above or the same. Solved exactly by dynamic programming.

    Args:
        similarity: (student layers, teacher layers).
    """
    depth, width = similarity.shape
    step = 1 if depth <= width else 0
    best, came_from = similarity[0].double(), list[list[int]]()
    for row in similarity[1:].double():
        before = best.new_full((width,), -torch.inf)
        before[step:] = best[: width - step]
        reached, origin = before.cummax(0)
        came_from.append((origin - step).tolist())
        best = reached + row
    chosen = [int(best.argmax())]
    for origins in reversed(came_from):
        chosen.append(origins[chosen[-1]])
    return tuple(enumerate(reversed(chosen)))


def _shifted(features: Tensor, start: Tensor) -> Tensor:
    """Return the features minus a constant, with a column of ones whose products are sums and counts."""
    return torch.cat([features.float() - start, features.new_ones(len(features), 1, dtype=torch.float32)], 1)


def _sums(one: list[Tensor], other: list[Tensor]) -> list[Tensor]:
    return [before.add_(more) for before, more in zip(one, other, strict=True)]


def _norms(whose: str, own: list[Tensor]) -> Tensor:
    """Return the norm of each layer's covariance; raises ModelError where it is not finite."""
    norms = torch.stack([_squared_norm(sums).sqrt() for sums in own])
    if broken := (~norms.isfinite()).nonzero().flatten().tolist():
        raise ModelError(
            f"the output of layer {broken[0]} of the {whose} is not finite, so its CKA cannot be computed.",
            hint=f"check the {whose}'s weights, or use another model",
        )
    return norms


def _squared_norm(sums: Tensor) -> Tensor:
    """Return the squared norm of the covariance behind these sums, up to a factor that cancels out."""
    exact = sums.double()
    centred = exact[:-1, :-1] - torch.outer(exact[:-1, -1], exact[-1, :-1]) / exact[-1, -1]
    return centred.square().sum()
