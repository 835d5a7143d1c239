"""Metrics of class counts: F1, micro and macro averages, Matthews' correlation. Pure; undefined scores are 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compress.tasks.base import Array
from compress.tasks.metrics.weighted_metrics import Scores, safe_divide


@dataclass(frozen=True)
class ClassCounts:
    """For each class, in the order of the labels: true positives, predicted and true occurrences, (draws, classes)."""

    hits: Array
    predicted: Array
    true: Array

    def once(self) -> ClassCounts:
        """Return the counts of the first draw as integers (classes,)."""
        return ClassCounts(*(counts[0].astype(np.int64) for counts in (self.hits, self.predicted, self.true)))


def f1(hits: Array, predicted: Array, true: Array) -> NDArray[np.float64]:
    """Return F1, 2·hits / (predicted + true); 0 for classes that are neither predicted nor true."""
    return safe_divide(2.0 * hits, predicted + true)


def class_f1(counts: ClassCounts) -> NDArray[np.float64]:
    """Return the F1 of each class (draws, classes)."""
    return f1(counts.hits, counts.predicted, counts.true)


def micro_f1(counts: ClassCounts) -> Scores:
    """Return the F1 over the decisions on all classes (draws,)."""
    return f1(*(each.sum(axis=1) for each in (counts.hits, counts.predicted, counts.true)))


def macro_f1(counts: ClassCounts) -> Scores:
    """Return the mean F1 over the classes that occur, predicted or true (draws,); absent classes do not count."""
    present = (counts.predicted + counts.true) > 0
    return safe_divide(np.where(present, class_f1(counts), 0.0).sum(axis=1), present.sum(axis=1))


def matthews(counts: ClassCounts, rows: NDArray[np.float64]) -> Scores:
    """Return Matthews' correlation for any number of classes (Gorodkin 2004); 0 where one side is constant."""
    hits, predicted, true = (each.astype(np.float64) for each in (counts.hits, counts.predicted, counts.true))
    by_chance = (true * predicted).sum(axis=1)
    spread = np.sqrt(rows**2 - (predicted**2).sum(axis=1)) * np.sqrt(rows**2 - (true**2).sum(axis=1))
    return safe_divide(hits.sum(axis=1) * rows - by_chance, spread)


def count_pairs(true: Array, predicted: Array, classes: int) -> NDArray[np.int64]:
    """Return the confusion matrix: how often each class (lines) was predicted as each (columns)."""
    pairs = true.astype(np.int64) * classes + predicted
    return np.bincount(pairs.ravel(), minlength=classes**2).reshape(classes, classes)


def total_variation(first: Array, second: Array) -> NDArray[np.float64]:
    """Return the total variation distance of two distributions per row: the probability that moved, 0 to 1."""
    return 0.5 * np.abs(first.astype(np.float64) - second).sum(axis=-1)
