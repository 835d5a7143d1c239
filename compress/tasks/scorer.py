"""Scoring: predictions from decoded outputs, their metrics, and their wording.

Every metric is written once, for weighted rows: `weighted_scores` takes a matrix (draws, rows) of how often each row
counts, which bootstrap intervals use, and `score` is the same with one draw in which every row counts once. Kinds
whose metrics are means over rows only give `row_scores`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Array, Baseline, Confidence, ConfusionCounts, Metric, Rows
from compress.tasks.metrics import ClassCounts, Scores, Weights, weighted_means


class Scorer(ABC):
    """How a kind's predictions are made, scored and worded.

    What a kind has no notion of (it makes no decisions, or gives no probabilities) it returns None for, and the report
    leaves that part out.
    """

    metrics: tuple[Metric, ...]
    """The first is the default primary one."""
    baseline: Baseline
    """The model without a neural network whose scores reports state beside those of all others."""

    @abstractmethod
    def predictions(self, decoded: Sequence[Array], counts: Sequence[int], rows: Rows, task: TaskInfo) -> Array:
        """Return one prediction per row of the examples' ``decoded`` outputs; ``counts`` are examples per row.

        Never an object array: predictions are stored.
        """

    @abstractmethod
    def gold(self, rows: Rows) -> Array:
        """Return the true labels in the form that metrics compare; never an object array."""

    def has_varied_labels(self, gold: Array) -> bool:
        """Return whether the true labels of these rows differ, so that metrics which need it are defined."""
        return bool((gold != gold[:1]).any())

    # Thresholds.

    def has_threshold(self, rows: Rows) -> bool:
        """Return whether decisions on rows like these depend on a threshold, which is tuned on select."""
        return False

    def tune_threshold(self, predictions: Array, gold: Array, task: TaskInfo) -> TaskInfo:
        """Return the task with the best threshold for these predictions on select; unchanged by default."""
        return task

    def apply_threshold(self, predictions: Array, task: TaskInfo) -> Array:
        """Return the same predictions, decided by the threshold of ``task``."""
        return predictions

    # Metrics.

    def score(self, predictions: Array, gold: Array, task: TaskInfo) -> dict[str, float]:
        """Return all metrics, every row counting once."""
        scores = self.weighted_scores(predictions, gold, task, np.ones((1, len(gold))))
        return {name: float(values[0]) for name, values in scores.items()}

    def weighted_scores(self, predictions: Array, gold: Array, task: TaskInfo, weights: Weights) -> dict[str, Scores]:
        """Return all metrics on many resamples of the rows at once, each (draws,).

        Args:
            predictions: one per row.
            gold: the true labels.
            task: the task.
            weights: how often each row counts in each draw (draws, rows); a row that counts twice equals two rows.
        """
        return weighted_means(self.row_scores(predictions, gold), weights)

    def row_scores(self, predictions: Array, gold: Array) -> dict[str, Array]:
        """For kinds whose metrics are means over rows: return each metric's value on each row (rows,)."""
        raise NotImplementedError

    def class_counts(self, predictions: Array, gold: Array, task: TaskInfo) -> ClassCounts | None:
        """Return the counts that recall, precision and F1 of each class come from; None without classes."""
        counts = self.weighted_class_counts(predictions, gold, task, np.ones((1, len(gold))))
        return None if counts is None else counts.once()

    def weighted_class_counts(
        self, predictions: Array, gold: Array, task: TaskInfo, weights: Weights
    ) -> ClassCounts | None:
        """Return the counts of each class in each draw."""
        return None

    def confusion(self, predictions: Array, gold: Array, task: TaskInfo) -> ConfusionCounts | None:
        """Return how often each class was taken for another; None without classes."""
        return None

    def correct(self, predictions: Array, gold: Array) -> NDArray[np.bool_] | None:
        """Return whether each row's decision is right, for McNemar's test; None where there is no decision."""
        return None

    def errors(self, predictions: Array, gold: Array, task: TaskInfo) -> NDArray[np.float64] | None:
        """For kinds without decisions: return how far each prediction is from the truth; None where there are some."""
        return None

    # Comparisons of two models.

    def same_decision(self, predictions: Array, others: Array) -> NDArray[np.bool_] | None:
        """Return on which rows two models decide the same; None where there is no decision."""
        return None

    def distance(self, predictions: Array, others: Array) -> NDArray[np.float64] | None:
        """Return how far apart two models' predictions are, 0 for equal ones; None where that means nothing."""
        return None

    def label_spread(self, gold: Array, task: TaskInfo) -> float:
        """Return the spread of true labels on the scale of ``distance``; 1 where that is a share or a probability."""
        return 1.0

    def confidence(self, predictions: Array, gold: Array) -> Confidence | None:
        """Return the probabilities of the decisions; None where predictions hold none."""
        return None

    def certainty(self, predictions: Array) -> NDArray[np.float64]:
        """Return how sure a model is of the answer to each row: the probability of its least probable decision."""
        raise NotImplementedError

    # Wording.

    @abstractmethod
    def to_json(self, predictions: Array, task: TaskInfo) -> list[dict[str, Any]]:
        """Return one JSON-able prediction per row, e.g. {"label": "positive", "probability": 0.98}."""

    @abstractmethod
    def describe(self, predictions: Array, task: TaskInfo) -> list[str]:
        """Return one prediction per row for people to read (`positive (98 %)`).

        Never the text of the row: descriptions are published.
        """

    @abstractmethod
    def describe_gold(self, gold: Array, task: TaskInfo) -> list[str]:
        """Return the true labels in the wording of `describe`."""

    def describe_in_full(self, predictions: Array, rows: Rows, task: TaskInfo) -> list[str]:
        """Return what `describe` does, with words of the row where they are the prediction; never published."""
        return self.describe(predictions, task)

    def describe_gold_in_full(self, gold: Array, rows: Rows, task: TaskInfo) -> list[str]:
        """Return the true labels in the wording of `describe_in_full`."""
        return self.describe_gold(gold, task)
