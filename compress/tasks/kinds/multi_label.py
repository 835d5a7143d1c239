"""Any number of classes for a text or a pair of texts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError, Problem
from compress.model_info import TaskInfo
from compress.recipe.schema import Task
from compress.tasks.base import Arrays, ClassCounts, Confidence, Example, Metric, Row
from compress.tasks.kinds.text_kind import TextKind, collate_text, stacked_labels
from compress.tasks.metrics.f1_mcc import f1_each, mean_of_present
from compress.tasks.parsing.columns import is_missing, label_columns, listed, pick, text_fields
from compress.tasks.parsing.labels import collect, position

THRESHOLD = 0.5
"""A class is decided from this probability on."""


class MultiLabel(TextKind):
    """Answers are probabilities (rows, classes), each on its own; a decision is the set of those above one half."""

    name = "multi_label"
    problem = "multi_label_classification"
    metrics: tuple[Metric, ...] = (
        Metric("micro_f1", floor=0.0),
        Metric("macro_f1", floor=0.0),
        Metric("subset_accuracy", floor=0.0, is_accuracy=True, needs_varied_labels=False),
    )
    label_columns = None
    settings = ("labels", "first_label", "soft_labels", *TextKind.settings)

    def setting_problems(self, task: Task) -> Iterator[Problem]:
        """A class a column, where there are several columns."""
        columns = len(label_columns(task))
        if task.labels is not None and columns > 1 and len(task.labels) != columns:
            yield Problem(("task", "labels"), f"names {len(task.labels)} classes for {columns} columns")

    def labels(self, values: Iterable[Any], task: Task) -> tuple[str, ...]:
        """The classes the recipe names, else the names of several columns, else those among the lists of ``values``."""
        if task.labels is not None:
            return task.labels
        columns = label_columns(task)
        if len(columns) > 1:
            return columns
        odd = deque[Any](maxlen=1)
        labels = collect(_names(values, odd.append))
        # Cells that hold no classes have a row and a line, and reading the rows will tell them.
        if not labels and not odd:
            raise DataError("no row of train has any class: there is nothing to learn.")
        return labels

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """Texts, and 0 or 1 for each of ``labels``."""
        columns = label_columns(task)
        fields = text_fields(raw, task, where)
        if len(columns) > 1:
            marks = [_mark(pick(raw, column, task, where), column, where) for column in columns]
            return {**fields, "label": marks}
        marks = [0.0] * len(labels)
        for name in _listed(pick(raw, columns[0], task, where), where):
            marks[position(name, task, labels, where)] = 1.0
        return {**fields, "label": marks}

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """No class."""
        return {"label": [0.0] * len(task.labels)}

    def argmax_label(self, probabilities: Sequence[float]) -> list[float]:
        """1 for each class that is as probable as not."""
        return [float(probability >= THRESHOLD) for probability in probabilities]

    def classes(self, row: Row) -> Sequence[int]:
        """Those marked."""
        return [index for index, mark in enumerate(row["label"]) if mark]

    def collate(self, examples: Sequence[Example], pad_id: int) -> Arrays:
        """A padded batch; labels are float32 (n, classes)."""
        return {**collate_text(examples, pad_id), **stacked_labels(examples, np.float32)}

    def predictions(
        self, decided: Sequence[NDArray[Any]], counts: Sequence[int], rows: Sequence[Row], task: TaskInfo
    ) -> NDArray[Any]:
        """Probabilities (rows, classes): the logistic function of each logit, in a form that cannot overflow."""
        logits = self.logits(decided, counts, task)
        probabilities: NDArray[Any] = (0.5 * (1.0 + np.tanh(0.5 * logits))).astype(np.float32)
        return probabilities

    def gold(self, rows: Sequence[Row]) -> NDArray[Any]:
        """0 or 1 for each row and class."""
        return np.asarray([row["label"] for row in rows], dtype=np.float32)

    def score(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> dict[str, float]:
        """F1 over all decisions, the mean F1 of the classes that occur, the share of rows with every class right."""
        decided, true = _decided(answers), gold > THRESHOLD
        hits, chosen, there = (marks.sum(axis=0) for marks in (decided & true, decided, true))
        present = (chosen + there) > 0
        each = f1_each(hits, chosen, there)
        return {
            "micro_f1": float(f1_each(hits.sum(), chosen.sum(), there.sum())),
            "macro_f1": float(each[present].mean()) if present.any() else 0.0,
            "subset_accuracy": float((decided == true).all(axis=-1).mean()) if len(gold) else 0.0,
        }

    def correct(self, answers: NDArray[Any], gold: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Whether every class of a row is right."""
        right: NDArray[np.bool_] = (_decided(answers) == (gold > THRESHOLD)).all(axis=-1)
        return right

    def weighted_scores(
        self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo, times: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """From the counts of each class in each draw: (draws, classes)."""
        decided, true = _decided(answers), gold > THRESHOLD
        hits, chosen, there = (times @ marks for marks in (decided & true, decided, true))
        right = (decided == true).all(axis=-1)
        return {
            "micro_f1": f1_each(hits.sum(axis=1), chosen.sum(axis=1), there.sum(axis=1)),
            "macro_f1": mean_of_present(f1_each(hits, chosen, there), chosen + there),
            "subset_accuracy": times @ right / times.sum(axis=1),
        }

    def class_counts(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> ClassCounts | None:
        """How often each class was decided, true, and both."""
        decided, true = _decided(answers), gold > THRESHOLD
        return ClassCounts(*(marks.sum(axis=0) for marks in (decided & true, decided, true)))

    def same_decision(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Where the same set of classes is decided."""
        equal: NDArray[np.bool_] = (_decided(answers) == _decided(others)).all(axis=-1)
        return equal

    def distance(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64] | None:
        """The largest difference between two probabilities of the same class, 0 to 1."""
        largest: NDArray[np.float64] = np.abs(answers.astype(np.float64) - others).max(axis=-1)
        return largest

    def confidence(self, answers: NDArray[Any], gold: NDArray[Any]) -> Confidence | None:
        """A decision for each row and class: whether it applies, with the probability of that."""
        stated = np.maximum(answers, 1.0 - answers).astype(np.float64).ravel()
        right = (_decided(answers) == (gold > THRESHOLD)).ravel()
        return Confidence(np.repeat(np.arange(len(gold)), answers.shape[1]), stated, right)

    def to_json(self, answers: NDArray[Any], task: TaskInfo) -> list[dict[str, Any]]:
        """The decided classes by name, and every class's probability."""
        return [
            {
                "labels": [
                    label for label, probability in zip(task.labels, line, strict=True) if probability >= THRESHOLD
                ],
                "probabilities": {label: float(value) for label, value in zip(task.labels, line, strict=True)},
            }
            for line in answers
        ]

    def describe(self, answers: NDArray[Any], task: TaskInfo) -> list[str]:
        """`news (98 %), sport (51 %)`."""
        return [
            ", ".join(f"{label} ({100 * found['probabilities'][label]:.0f} %)" for label in found["labels"]) or "none"
            for found in self.to_json(answers, task)
        ]

    def describe_gold(self, gold: NDArray[Any], task: TaskInfo) -> list[str]:
        """`news, sport`."""
        lines = (zip(task.labels, line, strict=True) for line in gold)
        return [", ".join(label for label, mark in line if mark > THRESHOLD) or "none" for line in lines]


def _decided(answers: NDArray[Any]) -> NDArray[np.bool_]:
    decided: NDArray[np.bool_] = answers >= THRESHOLD
    return decided


def _names(values: Iterable[Any], odd: Callable[[Any], None]) -> Iterator[Any]:
    """The classes of all cells but ``odd`` ones, which hold no list, or a list of something else."""
    for value in values:
        found = listed(value)
        if found is None or any(isinstance(name, (list, tuple, dict)) for name in found):
            odd(value)
        else:
            yield from found


def _listed(value: Any, where: str) -> list[Any]:
    """The classes of one cell, which holds a list."""
    found = listed(value)
    if found is not None:
        return found
    told = "nothing" if is_missing(value) else repr(str(value)[:60])
    raise DataError(
        f"{where}: the label holds {told} where a list of classes is expected.",
        hint='write a list (["news", "sport"], or [] for none), or name several columns of 0 and 1 in task.label',
    )


def _mark(value: Any, column: str, where: str) -> float:
    """0 or 1 from a column that stands for one class."""
    text = str(int(value)) if isinstance(value, (bool, float)) and value in (0, 1) else str(value).strip()
    if text not in ("0", "1"):
        raise DataError(f"{where}: column '{column}' holds {str(value)[:40]!r} where 0 or 1 is expected.")
    return float(text)
