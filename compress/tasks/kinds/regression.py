"""A score for a text or a pair of texts, such as how alike two sentences are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress import format_numbers as fmt
from compress.batch_arrays import BatchArray
from compress.losses import OutputForm, TaskLoss
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Array, Baseline, Metric, Row, Rows, Script
from compress.tasks.kinds.text_kind import TextKind, label_column
from compress.tasks.metrics import Scores, Weights, pearson, spearman, weighted_means
from compress.tasks.parsing.columns import LABEL_HINT, column_value, label_columns, parse_number, text_fields

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task


class Regression(TextKind):
    """Predictions are scores (rows,) on the scale of the labels."""

    name = "regression"
    answer_fields = ("score",)
    problem = "regression"
    training_version = 2
    loss = TaskLoss("compress.losses.task.mse:mse", of_numbers=True)
    outputs = OutputForm("compress.losses.tensor_ops.logit_views:row_view", None)
    baseline = Baseline("a bag of words", "compress.measure.baselines.bag_of_words:scores_by_words")
    no_certainty: str = "a number says nothing about how sure a model is of it"
    answer_form: str = "compress.label.prompt_and_answer:Score"
    metrics: tuple[Metric, ...] = (
        Metric("spearman"),
        Metric("pearson"),
        Metric("mse", larger_is_better=False, needs_varied_labels=False),
    )
    batch_arrays: tuple[BatchArray, ...] = (BatchArray("labels", "example", np.float32, field="label"),)

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """Return the texts, and the score as a finite number."""
        value = column_value(raw, label_columns(task)[0], task, where)
        return {**text_fields(raw, task, where), "label": parse_number(value, "the score", where, hint=LABEL_HINT)}

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """Return zero."""
        return {"label": 0.0}

    def predictions(self, decoded: Sequence[Array], counts: Sequence[int], rows: Rows, task: TaskInfo) -> Array:
        """Return scores (rows,)."""
        return self.logits(decoded, counts, task).reshape(-1).astype(np.float32)

    def gold(self, rows: Rows) -> Array:
        """Return the true scores, float32."""
        return label_column(rows, np.float32)

    def weighted_scores(self, predictions: Array, gold: Array, task: TaskInfo, weights: Weights) -> dict[str, Scores]:
        """Return the correlation of ranks and of values, and the mean squared error."""
        predicted, true = predictions.astype(np.float64), gold.astype(np.float64)
        correlations = correlation_scores(predictions, gold, weights)
        return {**correlations, **weighted_means({"mse": (predicted - true) ** 2}, weights)}

    def distance(self, predictions: Array, others: Array) -> NDArray[np.float64]:
        """Return the difference between the two scores."""
        return np.abs(predictions.astype(np.float64) - others)

    def errors(self, predictions: Array, gold: Array, task: TaskInfo) -> NDArray[np.float64]:
        """Return the difference from the true score."""
        return self.distance(predictions, gold)

    def label_spread(self, gold: Array, task: TaskInfo) -> float:
        """Return the standard deviation of the true scores."""
        return float(np.std(gold))

    def script(self, task: TaskInfo) -> Script:
        """Print the score."""
        return Script("the score of each text", ("print(outputs[0][0][0])",))

    def to_json(self, predictions: Array, task: TaskInfo) -> list[dict[str, Any]]:
        """Return the score."""
        return [{"score": float(value)} for value in predictions]

    def describe(self, predictions: Array, task: TaskInfo) -> list[str]:
        """Return `3.82`, `123457`."""
        return [fmt.figure(float(value)) for value in predictions]

    def describe_gold(self, gold: Array, task: TaskInfo) -> list[str]:
        """Return `4`."""
        return self.describe(gold, task)


def correlation_scores(predictions: Array, gold: Array, weights: Weights) -> dict[str, Scores]:
    """Return Spearman's and Pearson's correlation; neither depends on the scale of either side."""
    predicted, true = predictions.astype(np.float64), gold.astype(np.float64)
    return {"spearman": spearman(predicted, true, weights), "pearson": pearson(predicted, true, weights)}
