"""Similarity of the layers of two models, and the layer map that follows from it.

Kornblith et al., "Similarity of Neural Network Representations Revisited", 2019 (arXiv:1905.00414): linear centred
kernel alignment, CKA = |Yᵀ X|² / (|Xᵀ X| |Yᵀ Y|) in Frobenius norms, for centred features. It is 1 for layers that
are a rotation and scaling of each other, near 0 for unrelated layers, and widths may differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from compress.train.distillation.layer_map import Pairs

Features = Sequence[Tensor]
"""The outputs of each layer of a model for the same tokens, each (tokens, width)."""


class LinearCKA:
    """CKA of every student layer with every teacher layer, from sums over tokens, in constant memory."""

    def __init__(self) -> None:
        self._starts: list[Tensor] = []
        self._sums: dict[tuple[int, int], Tensor] = {}
        self._depth = 0

    def add(self, student: Features, teacher: Features) -> None:
        """Add tokens; both models must have processed the same ones."""
        layers, self._depth = [*student, *teacher], len(student)
        if not self._starts:  # shifted near zero, so that centring later does not lose precision
            self._starts = [layer.float().mean(0) for layer in layers]
        shifted = list(map(_shifted, layers, self._starts))
        itself = [(layer, layer) for layer in range(len(layers))]
        for one, other in (*itself, *product(range(self._depth), range(self._depth, len(layers)))):
            sums = shifted[one].T @ shifted[other]
            self._sums[one, other] = self._sums[one, other].add_(sums) if (one, other) in self._sums else sums

    def matrix(self) -> Tensor:
        """Return CKA (student layers, teacher layers); 0 where a layer has the same output for every token."""
        squares = {layers: _squared_norm(sums) for layers, sums in self._sums.items()}
        norms = [math.sqrt(squares[layer, layer]) for layer in range(len(self._starts))]
        teacher = range(self._depth, len(norms))
        rows = [
            [squares[own, other] / (norms[own] * norms[other] or math.inf) for other in teacher]
            for own in range(self._depth)
        ]
        return torch.tensor(rows, dtype=torch.float64)


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


def _squared_norm(sums: Tensor) -> float:
    """Return the squared norm of the covariance behind these sums, up to a factor that cancels out."""
    exact = sums.double()
    centred = exact[:-1, :-1] - torch.outer(exact[:-1, -1], exact[-1, :-1]) / exact[-1, -1]
    return centred.square().sum().item()
