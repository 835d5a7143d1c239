"""Scores that come from counting: confusion counts, F1, Matthews. Pure; undefined scores are 0 as is usual."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


def confusion(decided: NDArray[Any], gold: NDArray[Any], classes: int) -> Counts:
    """How often each true class (row) was taken for each class (column): shape (classes, classes)."""
    flat = np.bincount(gold.astype(np.int64) * classes + decided.astype(np.int64), minlength=classes * classes)
    matrix: Counts = flat.reshape(classes, classes)
    return matrix


def f1_each(hits: NDArray[Any], decided: NDArray[Any], true: NDArray[Any]) -> NDArray[np.float64]:
    """F1 of each class, 2·hits / (decided + true); 0 where a class is neither decided nor true."""
    total = decided + true
    zeros = np.zeros(np.shape(total), dtype=np.float64)
    scores: NDArray[np.float64] = np.divide(2.0 * hits, total, out=zeros, where=total > 0)
    return scores


def f1_of_classes(matrix: Counts) -> NDArray[np.float64]:
    """F1 of each class of a confusion matrix."""
    return f1_each(np.diag(matrix), matrix.sum(axis=0), matrix.sum(axis=1))


def macro_f1(matrix: Counts) -> float:
    """The mean F1 over the classes that occur, decided or true: an absent class says nothing."""
    present = (matrix.sum(axis=0) + matrix.sum(axis=1)) > 0
    return float(f1_of_classes(matrix)[present].mean()) if present.any() else 0.0


def mean_of_present(scores: NDArray[np.float64], seen: NDArray[Any]) -> NDArray[np.float64]:
    """The mean of each line over the classes that were ``seen`` in it; 0 where none was."""
    present = seen > 0
    sums, counts = np.where(present, scores, 0.0).sum(axis=-1), present.sum(axis=-1)
    means: NDArray[np.float64] = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
    return means


def matthews(matrix: Counts) -> float:
    """Matthews' correlation in its form for any number of classes (Gorodkin 2004); 0 where one side is constant."""
    counts = matrix.astype(np.float64)
    total, true, decided = counts.sum(), counts.sum(axis=1), counts.sum(axis=0)
    spread = np.sqrt(total**2 - decided @ decided) * np.sqrt(total**2 - true @ true)
    return float((np.trace(counts) * total - true @ decided) / spread) if spread > 0 else 0.0


def total_variation(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """How much probability lies elsewhere in the second distribution of each row, 0 to 1."""
    moved: NDArray[np.float64] = 0.5 * np.abs(first.astype(np.float64) - second).sum(axis=-1)
    return moved
