"""One class of several for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress.batch_arrays import BatchArray
from compress.errors import DataError, Problem
from compress.losses import OutputForm, TaskLoss
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Array, Baseline, Confidence, ConfusionCounts, Metric, Row, Rows, Script
from compress.tasks.kinds.text_kind import TextKind, label_column, same_argmax, softmax
from compress.tasks.metrics import (
    ClassCounts,
    Scores,
    Weights,
    class_f1,
    count_pairs,
    macro_f1,
    matthews,
    safe_divide,
    total_variation,
    weighted_counts,
)
from compress.tasks.parsing.columns import column_value, label_columns, text_fields
from compress.tasks.parsing.labels import class_index, collect_classes

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task


class Classification(TextKind):
    """Predictions are probabilities (rows, classes); the decision is the most probable class."""

    name = "classification"
    answer_fields = ("label", "probability")
    problem = "single_label_classification"
    loss = TaskLoss("compress.losses.task.cross_entropy:cross_entropy", weighted=True)
    outputs = OutputForm("compress.losses.tensor_ops.logit_views:row_view", "softmax", has_target=True)
    baseline = Baseline("a bag of words", "compress.measure.baselines.bag_of_words:classes_by_words")
    answer_form = "compress.label.prompt_and_answer:OneClass"
    metrics: tuple[Metric, ...] = (
        Metric("accuracy", is_accuracy=True, needs_varied_labels=False),
        *map(Metric, ("f1", "macro_f1", "matthews")),
    )
    batch_arrays = (BatchArray("labels", "example", np.int64, field="label"),)
    settings = ("labels", "first_label", "soft_labels", *TextKind.settings)
    exclusive = True
    no_certainty = ""

    def setting_problems(self, task: Task) -> Iterator[Problem]:
        """Yield too few classes, and `f1` with other than two."""
        classes = None if task.labels is None else len(task.labels)
        if classes is not None and classes < 2:
            yield Problem(("task", "labels"), f"names {classes} class; at least two are needed")
        if task.metric == "f1" and classes not in (None, 2):
            yield Problem(("task", "metric"), f"f1 is for two classes and there are {classes}; macro_f1 is for more")

    def labels(self, values: Iterable[Any], task: Task) -> tuple[str, ...]:
        """Return the classes that the recipe names, or those among ``values``; at least two."""
        labels = task.labels if task.labels is not None else collect_classes(values, least=2)
        if len(labels) < 2:
            present = f"only the class '{labels[0]}'" if labels else "no label at all"
            raise DataError(f"train has {present}; at least two classes are needed.")
        if task.metric == "f1" and len(labels) != 2:
            raise DataError(f"f1 is for two classes, and train has {len(labels)}.", hint="metric: macro_f1")
        return labels

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """Return the texts, and the class as its index in ``labels``."""
        value = column_value(raw, label_columns(task)[0], task, where)
        return {**text_fields(raw, task, where), "label": class_index(value, task, labels, where)}

    def argmax_label(self, probabilities: Sequence[float]) -> int:
        """Return the most probable class, the first of equals."""
        return max(range(len(probabilities)), key=lambda index: probabilities[index])

    def row_classes(self, row: Row) -> Sequence[int]:
        """Return the class."""
        return (row["label"],)

    def predictions(self, decoded: Sequence[Array], counts: Sequence[int], rows: Rows, task: TaskInfo) -> Array:
        """Return probabilities (rows, classes)."""
        return softmax(self.logits(decoded, counts, task)).astype(np.float32)

    def gold(self, rows: Rows) -> Array:
        """Return the true class of each row, int64."""
        return label_column(rows, np.int64)

    def weighted_scores(self, predictions: Array, gold: Array, task: TaskInfo, weights: Weights) -> dict[str, Scores]:
        """Return accuracy, macro F1 and Matthews; with two classes also F1 of the last one, as GLUE counts it."""
        counts, rows = self.weighted_class_counts(predictions, gold, task, weights), weights.sum(axis=1)
        scores = {"accuracy": safe_divide(counts.hits.sum(axis=1), rows)}
        if len(task.labels) == 2:
            scores["f1"] = class_f1(counts)[:, -1]
        return {**scores, "macro_f1": macro_f1(counts), "matthews": matthews(counts, rows)}

    def weighted_class_counts(self, predictions: Array, gold: Array, task: TaskInfo, weights: Weights) -> ClassCounts:
        """Return the diagonal, the columns and the lines of each draw's confusion matrix."""
        chosen, classes = predictions.argmax(axis=-1), len(task.labels)
        right = chosen == gold
        return ClassCounts(
            hits=weighted_counts(gold[right], classes, weights[:, right]),
            predicted=weighted_counts(chosen, classes, weights),
            true=weighted_counts(gold, classes, weights),
        )

    def confusion(self, predictions: Array, gold: Array, task: TaskInfo) -> ConfusionCounts:
        """Return the confusion matrix."""
        return ConfusionCounts(task.labels, count_pairs(gold, predictions.argmax(axis=-1), len(task.labels)))

    def correct(self, predictions: Array, gold: Array) -> NDArray[np.bool_]:
        """Return whether the most probable class is the true one."""
        return predictions.argmax(axis=-1) == gold

    def same_decision(self, predictions: Array, others: Array) -> NDArray[np.bool_]:
        """Return where the most probable class is the same."""
        return same_argmax(predictions, others)

    def distance(self, predictions: Array, others: Array) -> NDArray[np.float64]:
        """Return the total variation distance of the two distributions, 0 to 1."""
        return total_variation(predictions, others)

    def confidence(self, predictions: Array, gold: Array) -> Confidence:
        """Return one decision per row: the most probable class."""
        return Confidence(np.arange(len(gold)), self.certainty(predictions), self.correct(predictions, gold))

    def certainty(self, predictions: Array) -> NDArray[np.float64]:
        """Return the probability of the most probable class."""
        stated: NDArray[np.float64] = predictions.max(axis=-1).astype(np.float64)
        return stated

    def script(self, task: TaskInfo) -> Script:
        """Print the most probable class."""
        lines = (
            "logits = outputs[0][0][:len(labels)]",
            "print(labels[logits.argmax()], 1 / numpy.exp(logits - logits.max()).sum())",
        )
        return Script("the class of each text and its probability", lines, labels=True)

    def to_json(self, predictions: Array, task: TaskInfo) -> list[dict[str, Any]]:
        """Return the class by name, with its probability."""
        best = predictions.argmax(axis=-1)
        return [
            {"label": task.labels[index], "probability": float(line[index])}
            for index, line in zip(best, predictions, strict=True)
        ]

    def describe(self, predictions: Array, task: TaskInfo) -> list[str]:
        """Return `positive (98 %)`."""
        return [f"{row['label']} ({100 * row['probability']:.0f} %)" for row in self.to_json(predictions, task)]

    def describe_gold(self, gold: Array, task: TaskInfo) -> list[str]:
        """Return `positive`."""
        return [task.labels[index] for index in gold]
