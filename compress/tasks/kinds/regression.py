"""A score for a text or a pair of texts, such as how alike two sentences are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError
from compress.model_info import TaskInfo
from compress.recipe.schema import Task
from compress.tasks.base import Arrays, Example, Metric, Row
from compress.tasks.kinds.text_kind import TextKind, collate_text, stacked_labels
from compress.tasks.metrics.bootstrap_metrics import pearson_of_draws, spearman_of_draws
from compress.tasks.parsing.columns import is_missing, label_columns, pick, text_fields


class Regression(TextKind):
    """Answers are scores (rows,) on the scale of the labels."""

    name = "regression"
    problem = "regression"
    metrics: tuple[Metric, ...] = (
        Metric("spearman", floor=0.0),
        Metric("pearson", floor=0.0),
        Metric("mse", larger_is_better=False, needs_varied_labels=False),
    )

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """Texts, and the score as a finite number."""
        value = pick(raw, label_columns(task)[0], task, where)
        return {**text_fields(raw, task, where), "label": number(value, where)}

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """Zero."""
        return {"label": 0.0}

    def collate(self, examples: Sequence[Example], pad_id: int) -> Arrays:
        """A padded batch; labels are float32 (n,)."""
        return {**collate_text(examples, pad_id), **stacked_labels(examples, np.float32)}

    def predictions(
        self, decided: Sequence[NDArray[Any]], counts: Sequence[int], rows: Sequence[Row], task: TaskInfo
    ) -> NDArray[Any]:
        """Scores (rows,)."""
        scores: NDArray[Any] = self.logits(decided, counts, task).reshape(-1).astype(np.float32)
        return scores

    def gold(self, rows: Sequence[Row]) -> NDArray[Any]:
        """The true scores, float32."""
        return np.fromiter((row["label"] for row in rows), dtype=np.float32, count=len(rows))

    def score(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> dict[str, float]:
        """Correlation of ranks and of values, and the mean squared error."""
        given, true = answers.astype(np.float64), gold.astype(np.float64)
        return {
            "spearman": pearson(ranks(given), ranks(true)),
            "pearson": pearson(given, true),
            "mse": float(np.mean((given - true) ** 2)) if len(true) else 0.0,
        }

    def weighted_scores(
        self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo, times: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """Correlations and errors in which each row counts as often as it was drawn."""
        given, true = answers.astype(np.float64), gold.astype(np.float64)
        return {
            "spearman": spearman_of_draws(given, true, times),
            "pearson": pearson_of_draws(given, true, times),
            "mse": times @ (given - true) ** 2 / times.sum(axis=1),
        }

    def distance(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64] | None:
        """The difference between the two scores."""
        apart: NDArray[np.float64] = np.abs(answers.astype(np.float64) - others)
        return apart

    def label_spread(self, gold: NDArray[Any], task: TaskInfo) -> float:
        """The standard deviation of the true scores."""
        return float(np.std(gold))

    def to_json(self, answers: NDArray[Any], task: TaskInfo) -> list[dict[str, Any]]:
        """The score."""
        return [{"score": float(value)} for value in answers]

    def describe(self, answers: NDArray[Any], task: TaskInfo) -> list[str]:
        """`3.82`."""
        return [f"{value:.3g}" for value in answers]

    def describe_gold(self, gold: NDArray[Any], task: TaskInfo) -> list[str]:
        """`4`."""
        return self.describe(gold, task)


def pearson(left: NDArray[Any], right: NDArray[Any]) -> float:
    """The linear correlation; 0 where one side is constant, since it then tells nothing of the other."""
    if not len(left) or left.min() == left.max() or right.min() == right.max():
        return 0.0
    left, right = left - left.mean(), right - right.mean()
    spread = math.sqrt(float(left @ left) * float(right @ right))
    return float(left @ right) / spread if spread > 0 else 0.0


def ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """The rank of each value from 1, equal values sharing the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    shared: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2.0)[place]
    return shared


def number(value: Any, where: str) -> float:
    """A raw score as a finite number, or a DataError that starts with ``where``."""
    if is_missing(value):
        raise DataError(f"{where}: the score is empty.", hint="every row of train, select and test needs its answer")
    try:
        number = float("x") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where}: the score is {str(value)[:40]!r} where a number is expected.") from error
    if not math.isfinite(number):
        raise DataError(f"{where}: the score is {number} where a finite number is expected.")
    return number
