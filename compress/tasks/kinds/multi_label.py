"""Any number of classes for a text or a pair of texts."""

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
from compress.tasks.kinds.text_kind import TextKind
from compress.tasks.metrics import ClassCounts, Scores, Weights, macro_f1, micro_f1, weighted_means
from compress.tasks.parsing.columns import column_value, label_columns, parse_list, text_fields, wrong_value
from compress.tasks.parsing.labels import class_index, collect_classes

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task

THRESHOLD = 0.5
"""A class is predicted from this probability on."""
NO_CLASS = "no class"
"""The line and the column of a confusion matrix for classes that were mixed up with none."""


class MultiLabel(TextKind):
    """Predictions are independent probabilities (rows, classes); the decision is the set of those from one half on."""

    name = "multi_label"
    answer_fields = ("labels", "probabilities")
    problem = "multi_label_classification"
    loss = TaskLoss("compress.losses.task.bce:bce", weighted=True)
    outputs = OutputForm("compress.losses.tensor_ops.logit_views:row_view", "sigmoid")
    baseline = Baseline("a bag of words", "compress.measure.baselines.bag_of_words:labels_by_words")
    confusion_note = (
        "A class that was missed counts in the column of each class that was predicted wrongly in its row, or else in"
        f" “{NO_CLASS}”; the line “{NO_CLASS}” has those predicted wrongly where none was missed."
    )
    answer_form = "compress.label.prompt_and_answer:SeveralClasses"
    metrics: tuple[Metric, ...] = (
        Metric("micro_f1"),
        Metric("macro_f1"),
        Metric("subset_accuracy", is_accuracy=True, needs_varied_labels=False),
    )
    batch_arrays = (BatchArray("labels", "example", np.float32, field="label"),)
    max_label_columns = None
    no_certainty = ""
    settings = ("labels", "first_label", "soft_labels", *TextKind.settings)

    def setting_problems(self, task: Task) -> Iterator[Problem]:
        """Yield a number of classes that differs from the number of label columns, where there are several."""
        columns = len(label_columns(task))
        if task.labels is not None and columns > 1 and len(task.labels) != columns:
            yield Problem(("task", "labels"), f"names {len(task.labels)} classes for {columns} columns")

    def labels(self, values: Iterable[Any], task: Task) -> tuple[str, ...]:
        """Return the classes the recipe names, else the names of several columns, else those in the lists."""
        if task.labels is not None:
            return task.labels
        columns = label_columns(task)
        if len(columns) > 1:
            return columns
        # Invalid cells are reported with their row and line when the rows are read.
        cells = (name for value in values for name in parse_list(value) or ())
        labels = collect_classes((name for name in cells if not isinstance(name, (list, tuple, dict))), least=1)
        if not labels:
            raise DataError("no row of train has any class: there is nothing to learn.")
        return labels

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """Return the texts, and 0 or 1 for each of ``labels``."""
        columns = label_columns(task)
        cells = [column_value(raw, column, task, where) for column in columns]
        if len(columns) > 1:
            marks = [_parse_mark(cell, column, where) for cell, column in zip(cells, columns, strict=True)]
        else:
            classes = {class_index(name, task, labels, where) for name in _class_list(cells[0], where)}
            marks = [float(index in classes) for index in range(len(labels))]
        return {**text_fields(raw, task, where), "label": marks}

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """Return no class."""
        return {"label": [0.0] * len(task.labels)}

    def argmax_label(self, probabilities: Sequence[float]) -> list[float]:
        """Return 1 for each class of at least probability one half."""
        return [float(probability >= THRESHOLD) for probability in probabilities]

    def row_classes(self, row: Row) -> Sequence[int]:
        """Return the classes of the row."""
        return [index for index, mark in enumerate(row["label"]) if mark]

    def predictions(self, decoded: Sequence[Array], counts: Sequence[int], rows: Rows, task: TaskInfo) -> Array:
        """Return probabilities (rows, classes): the logistic function, in a form that cannot overflow."""
        logits = self.logits(decoded, counts, task)
        return (0.5 * (1.0 + np.tanh(0.5 * logits))).astype(np.float32)

    def gold(self, rows: Rows) -> Array:
        """Return 0 or 1 for each row and class."""
        return np.asarray([row["label"] for row in rows], dtype=np.float32)

    def weighted_scores(self, predictions: Array, gold: Array, task: TaskInfo, weights: Weights) -> dict[str, Scores]:
        """Return F1 over all decisions, the mean F1 of classes that occur, the share of rows with every class right."""
        counts = self.weighted_class_counts(predictions, gold, task, weights)
        rows = weighted_means({"subset_accuracy": self.correct(predictions, gold)}, weights)
        return {"micro_f1": micro_f1(counts), "macro_f1": macro_f1(counts), **rows}

    def weighted_class_counts(self, predictions: Array, gold: Array, task: TaskInfo, weights: Weights) -> ClassCounts:
        """Return how often each class was predicted, true, and both."""
        chosen, true = _decisions(predictions), gold > THRESHOLD
        return ClassCounts(*(weights @ marks for marks in (chosen & true, chosen, true)))

    def confusion(self, predictions: Array, gold: Array, task: TaskInfo) -> ConfusionCounts:
        """Return which class was predicted where another one was missed (Heydarian and others, 2022).

        The diagonal has the classes that were predicted rightly. The last line counts classes that were predicted
        where none was missed, and the last column those that were missed where none was predicted wrongly.
        """
        chosen, true = _decisions(predictions), gold > THRESHOLD
        # Products of integers are slow, and counts are exact in double precision.
        missed, wrong = (_with_none(marks).astype(np.float64) for marks in (true & ~chosen, chosen & ~true))
        counts = (missed.T @ wrong).astype(np.int64)
        counts[np.diag_indices(len(task.labels))] = (chosen & true).sum(axis=0)
        counts[-1, -1] = 0  # rows without an error
        return ConfusionCounts((*task.labels, NO_CLASS), counts)

    def correct(self, predictions: Array, gold: Array) -> NDArray[np.bool_]:
        """Return whether every class of a row is right."""
        return (_decisions(predictions) == (gold > THRESHOLD)).all(axis=-1)

    def same_decision(self, predictions: Array, others: Array) -> NDArray[np.bool_]:
        """Return where the same set of classes is predicted."""
        return (_decisions(predictions) == _decisions(others)).all(axis=-1)

    def distance(self, predictions: Array, others: Array) -> NDArray[np.float64]:
        """Return the largest difference between two probabilities of the same class, 0 to 1."""
        return np.abs(predictions.astype(np.float64) - others).max(axis=-1)

    def confidence(self, predictions: Array, gold: Array) -> Confidence:
        """Return a decision for each row and class: whether it applies, with the probability of that."""
        stated = np.maximum(predictions, 1.0 - predictions).astype(np.float64).ravel()
        right = (_decisions(predictions) == (gold > THRESHOLD)).ravel()
        return Confidence(np.repeat(np.arange(len(gold)), predictions.shape[1]), stated, right)

    def certainty(self, predictions: Array) -> NDArray[np.float64]:
        """Return the probability of the decision on the class that is the least clear."""
        stated: NDArray[np.float64] = np.maximum(predictions, 1.0 - predictions).min(axis=-1).astype(np.float64)
        return stated

    def script(self, task: TaskInfo) -> Script:
        """Print the classes of at least probability one half."""
        line = "print([label for label, logit in zip(labels, outputs[0][0]) if logit >= 0])"
        return Script("the classes of each text whose probability is one half or more", (line,), labels=True)

    def to_json(self, predictions: Array, task: TaskInfo) -> list[dict[str, Any]]:
        """Return the predicted classes by name, and every class's probability."""
        rows = [dict(zip(task.labels, map(float, line), strict=True)) for line in predictions]
        return [
            {"labels": [label for label, value in row.items() if value >= THRESHOLD], "probabilities": row}
            for row in rows
        ]

    def describe(self, predictions: Array, task: TaskInfo) -> list[str]:
        """Return `news (98 %), sport (51 %)`."""
        return [
            ", ".join(f"{label} ({100 * row['probabilities'][label]:.0f} %)" for label in row["labels"]) or "none"
            for row in self.to_json(predictions, task)
        ]

    def describe_gold(self, gold: Array, task: TaskInfo) -> list[str]:
        """Return `news, sport`."""
        lines = (zip(task.labels, line, strict=True) for line in gold)
        return [", ".join(label for label, mark in line if mark > THRESHOLD) or "none" for line in lines]


def _decisions(predictions: Array) -> NDArray[np.bool_]:
    return predictions >= THRESHOLD


def _with_none(marks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Append a column that marks the rows without any class."""
    return np.column_stack([marks, ~marks.any(axis=1)])


def _class_list(value: Any, where: str) -> list[Any]:
    """Return the list of classes in a cell."""
    classes = parse_list(value)
    if classes is not None:
        return classes
    hint = 'write a list (["news", "sport"], or [] for none), or name several columns of 0 and 1 in task.label'
    raise wrong_value(value, "the label", "a list of classes", where, hint)


def _parse_mark(value: Any, column: str, where: str) -> float:
    """Return 0 or 1 from the column of one class."""
    text = str(int(value)) if isinstance(value, (bool, float)) and value in (0, 1) else str(value).strip()
    if text not in ("0", "1"):
        raise wrong_value(value, f"column '{column}'", "0 or 1", where)
    return float(text)
