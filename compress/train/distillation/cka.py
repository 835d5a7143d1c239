"""How alike the layers of two models are, and which of one follow which of the other by that. Tensors in and out.

Kornblith et al., "Similarity of Neural Network Representations Revisited", 2019 (arXiv:1905.00414): linear centred
kernel alignment, CKA = |Yᵀ X|² / (|Xᵀ X| |Yᵀ Y|) in Frobenius norms, for features whose means are taken away. It is 1
for layers that are a rotation and scaling of each other, near 0 for layers that have nothing in common, and needs no
equal widths.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from compress.errors import ModelError
from compress.train.distillation.layer_map import Pairs

Features = Sequence[Tensor]
"""What every layer of a model makes of the same tokens, each (tokens, width)."""


class LinearCKA:
    """CKA of every layer of a student with every layer of a teacher, from sums over tokens: memory does not grow."""

    def __init__(self) -> None:
        self._starts: tuple[list[Tensor], list[Tensor]] | None = None
        self._own: tuple[list[Tensor], list[Tensor]] = [], []
        self._between: list[list[Tensor]] = []

    def add(self, student: Features, teacher: Features) -> None:
        """Count these tokens too; both models have seen the same ones."""
        if self._starts is None:  # moved near zero, so that taking the means away later loses nothing to rounding
            self._starts = [each.float().mean(0) for each in student], [each.float().mean(0) for each in teacher]
        ours, theirs = (list(map(_moved, *both)) for both in zip((student, teacher), self._starts, strict=True))
        own = [_product(each, each) for each in ours], [_product(each, each) for each in theirs]
        between = [[_product(one, other) for other in theirs] for one in ours]
        if self._between:
            own = _sums(self._own[0], own[0]), _sums(self._own[1], own[1])
            between = [_sums(*rows) for rows in zip(self._between, between, strict=True)]
        self._own, self._between = own, between

    def matrix(self) -> Tensor:
        """CKA (student's layers, teacher's layers); 0 where a layer says the same of every token."""
        ours, theirs = (_norms(whose, own) for whose, own in zip(("student", "teacher"), self._own, strict=True))
        shared = torch.stack([torch.stack([_square(each) for each in row]) for row in self._between])
        both = ours[:, None] * theirs
        return (shared / both.where(both > 0, 1.0)).where(both > 0, 0.0).cpu()


def align_layers(likeness: Tensor) -> Pairs:
    """The pairs (student layer, teacher layer) that are most alike in sum and never cross.

    Every student layer gets a teacher layer above that of the one before it; where the student is deeper than the
    teacher, above or the same. Solved exactly, layer by layer.

    Args:
        likeness: (student's layers, teacher's layers).
    """
    depth, width = likeness.shape
    apart = 1 if depth <= width else 0
    best, came_from = likeness[0].double(), list[list[int]]()
    for row in likeness[1:].double():
        before = best.new_full((width,), -torch.inf)
        before[apart:] = best[: width - apart]
        reached, origin = before.cummax(0)
        came_from.append((origin - apart).tolist())
        best = reached + row
    chosen = [int(best.argmax())]
    for origins in reversed(came_from):
        chosen.append(origins[chosen[-1]])
    return tuple(enumerate(reversed(chosen)))


def _moved(features: Tensor, start: Tensor) -> Tensor:
    """The features less a constant, and a column of ones whose products are sums and counts."""
    return torch.cat([features.float() - start, features.new_ones(len(features), 1, dtype=torch.float32)], 1)


def _product(one: Tensor, other: Tensor) -> Tensor:
    return one.T @ other


def _sums(one: list[Tensor], other: list[Tensor]) -> list[Tensor]:
    return [before.add_(more) for before, more in zip(one, other, strict=True)]


def _norms(whose: str, own: list[Tensor]) -> Tensor:
    """Of what each layer of a model says; refused where that is no number."""
    norms = torch.stack([_square(each).sqrt() for each in own])
    if broken := (~norms.isfinite()).nonzero().flatten().tolist():
        raise ModelError(
            f"layer {broken[0]} of the {whose} says what is no number, so its likeness to others cannot be measured.",
            hint=f"look at the {whose}'s weights, or take another",
        )
    return norms


def _square(sums: Tensor) -> Tensor:
    """The squared norm of the covariance behind these sums, up to the number of tokens, which cancels out."""
    exact = sums.double()
    centred = exact[:-1, :-1] - torch.outer(exact[:-1, -1], exact[-1, :-1]) / exact[-1, -1]
    return centred.square().sum()
