"""Scoring: predictions from decoded outputs, their metrics, and their wording.

Every metric is written once, for weighted rows: `weighted_scores` takes a matrix (draws, rows) of how often each row
counts, which bootstrap intervals use, and `score` is the same with one draw in which every row counts once. Kinds
whose metrics are means over rows only give `row_scores`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.model_info import TaskInfo
from compress.tasks.example_types import Row
from compress.tasks.metrics.f1_mcc import ClassCounts
from compress.tasks.metrics.weighted_metrics import Scores, Weights, weighted_means


@dataclass(frozen=True)
class Metric:
    """A metric of a kind: its name, direction and, where there is one, the score of knowing nothing."""

    name: str
    larger_is_better: bool = True
    floor: float | None = None
    is_accuracy: bool = False
    """It is the share of rows that ``Scorer.correct`` marks: McNemar's test applies."""
    needs_varied_labels: bool = True
    """It is undefined on rows whose true labels are all the same (a correlation, an F1)."""


@dataclass(frozen=True)
class Confidence:
    """The probabilities of a model's decisions; a row may have one (its class) or many (each label, each word)."""

    row: NDArray[np.intp]
    """The row of each decision."""
    stated: NDArray[np.float64]
    """The probability that the model gave to its decision."""
    right: NDArray[np.bool_]
    """Whether the decision was right."""


class Scorer(ABC):
    """How a kind's predictions are made, scored and worded.

    What a kind has no notion of (it makes no decisions, or gives no probabilities) it returns None for, and the report
    leaves that part out.
    """

    metrics: tuple[Metric, ...]
    """The first is the default primary one."""

    @abstractmethod
    def predictions(
        self, decoded: Sequence[NDArray[Any]], counts: Sequence[int], rows: Sequence[Row], task: TaskInfo
    ) -> NDArray[Any]:
        """Return one prediction per row of the examples' ``decoded`` outputs; ``counts`` are examples per row.

        Never an object array: predictions are stored.
        """

    @abstractmethod
    def gold(self, rows: Sequence[Row]) -> NDArray[Any]:
        """Return the true labels in the form that metrics compare; never an object array."""

    def has_varied_labels(self, gold: NDArray[Any]) -> bool:
        """Return whether the true labels of these rows differ, so that metrics which need it are defined."""
        return bool((gold != gold[:1]).any())

    # Thresholds.

    def has_threshold(self, rows: Sequence[Row]) -> bool:
        """Return whether decisions on rows like these depend on a threshold, which is tuned on select."""
        return False

    def tune_threshold(self, predictions: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> TaskInfo:
        """Return the task with the best threshold for these predictions on select; unchanged by default."""
        return task

    def apply_threshold(self, predictions: NDArray[Any], task: TaskInfo) -> NDArray[Any]:
        """Return the same predictions, decided by the threshold of ``task``."""
        return predictions

    # Metrics.

    def score(self, predictions: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> dict[str, float]:
        """Return all metrics, every row counting once."""
        scores = self.weighted_scores(predictions, gold, task, np.ones((1, len(gold))))
        return {name: float(values[0]) for name, values in scores.items()}

    def weighted_scores(
        self, predictions: NDArray[Any], gold: NDArray[Any], task: TaskInfo, weights: Weights
    ) -> dict[str, Scores]:
        """Return all metrics on many resamples of the rows at once, each (draws,).

        Args:
            predictions: one per row.
            gold: the true labels.
            task: the task.
            weights: how often each row counts in each draw (draws, rows); a row that counts twice equals two rows.
        """
        return weighted_means(self.row_scores(predictions, gold), weights)

    def row_scores(self, predictions: NDArray[Any], gold: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """For kinds whose metrics are means over rows: return each metric's value on each row (rows,)."""
        raise NotImplementedError

    def class_counts(self, predictions: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> ClassCounts | None:
        """Return the counts that recall, precision and F1 of each class come from; None without classes."""
        counts = self.weighted_class_counts(predictions, gold, task, np.ones((1, len(gold))))
        return None if counts is None else counts.once()

    def weighted_class_counts(
        self, predictions: NDArray[Any], gold: NDArray[Any], task: TaskInfo, weights: Weights
    ) -> ClassCounts | None:
        """Return the counts of each class in each draw."""
        return None

    def correct(self, predictions: NDArray[Any], gold: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Return whether each row's decision is right, for McNemar's test; None where there is no decision."""
        return None

    # Comparisons of two models.

    def same_decision(self, predictions: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Return on which rows two models decide the same; None where there is no decision."""
        return None

    def distance(self, predictions: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64] | None:
        """Return how far apart two models' predictions are, 0 for equal ones; None where that means nothing."""
        return None

    def label_spread(self, gold: NDArray[Any], task: TaskInfo) -> float:
        """Return the spread of true labels on the scale of ``distance``; 1 where that is a share or a probability."""
        return 1.0

    def confidence(self, predictions: NDArray[Any], gold: NDArray[Any]) -> Confidence | None:
        """Return the probabilities of the decisions; None where predictions hold none."""
        return None

    # Wording.

    @abstractmethod
    def to_json(self, predictions: NDArray[Any], task: TaskInfo) -> list[dict[str, Any]]:
        """Return one JSON-able prediction per row, e.g. {"label": "positive", "probability": 0.98}."""

    @abstractmethod
    def describe(self, predictions: NDArray[Any], task: TaskInfo) -> list[str]:
        """Return one prediction per row for people to read (`positive (98 %)`).

        Never the text of the row: descriptions are published.
        """

    @abstractmethod
    def describe_gold(self, gold: NDArray[Any], task: TaskInfo) -> list[str]:
        """Return the true labels in the wording of `describe`."""
