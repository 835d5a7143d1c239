"""One class of several for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError, Problem
from compress.model_info import TaskInfo
from compress.recipe.schema import Task
from compress.tasks.base import Arrays, ClassCounts, Confidence, Example, Metric, Row
from compress.tasks.kinds.text_kind import TextKind, collate_text, stacked_labels
from compress.tasks.metrics.bootstrap_metrics import totals
from compress.tasks.metrics.f1_mcc import (
    confusion,
    f1_each,
    f1_of_classes,
    macro_f1,
    matthews,
    mean_of_present,
    total_variation,
)
from compress.tasks.parsing.columns import label_columns, pick, text_fields
from compress.tasks.parsing.labels import collect, position


class Classification(TextKind):
    """Answers are probabilities (rows, classes); a decision is the most probable class."""

    name = "classification"
    problem = "single_label_classification"
    metrics: tuple[Metric, ...] = (
        Metric("accuracy", is_accuracy=True, needs_varied_labels=False),
        Metric("f1", floor=0.0),
        Metric("macro_f1", floor=0.0),
        Metric("matthews", floor=0.0),
    )
    settings = ("labels", "first_label", "soft_labels", *TextKind.settings)
    exclusive = True

    def setting_problems(self, task: Task) -> Iterator[Problem]:
        """Two classes at least; for `f1` two exactly."""
        classes = None if task.labels is None else len(task.labels)
        if classes is not None and classes < 2:
            yield Problem(("task", "labels"), f"names {classes} class: there is nothing to tell apart")
        if task.metric == "f1" and classes not in (None, 2):
            yield Problem(("task", "metric"), f"f1 is for two classes and there are {classes}; macro_f1 is for more")

    def labels(self, values: Iterable[Any], task: Task) -> tuple[str, ...]:
        """The classes the recipe names, or those among ``values``; one class alone cannot be learnt."""
        labels = task.labels if task.labels is not None else collect(values)
        if len(labels) < 2:
            told = f"only the class '{labels[0]}'" if labels else "no label at all"
            raise DataError(f"train has {told}: there is nothing to tell apart.")
        return labels

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """Texts, and the class as its place in ``labels``."""
        value = pick(raw, label_columns(task)[0], task, where)
        return {**text_fields(raw, task, where), "label": position(value, task, labels, where)}

    def argmax_label(self, probabilities: Sequence[float]) -> int:
        """The most probable class, the first of equals."""
        return max(range(len(probabilities)), key=lambda place: probabilities[place])

    def classes(self, row: Row) -> Sequence[int]:
        """The class."""
        return (row["label"],)

    def collate(self, examples: Sequence[Example], pad_id: int) -> Arrays:
        """A padded batch; labels are int64 (n,)."""
        return {**collate_text(examples, pad_id), **stacked_labels(examples, np.int64)}

    def predictions(
        self, decided: Sequence[NDArray[Any]], counts: Sequence[int], rows: Sequence[Row], task: TaskInfo
    ) -> NDArray[Any]:
        """Probabilities (rows, classes)."""
        logits = self.logits(decided, counts, task)
        odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probabilities: NDArray[Any] = (odds / odds.sum(axis=-1, keepdims=True)).astype(np.float32)
        return probabilities

    def gold(self, rows: Sequence[Row]) -> NDArray[Any]:
        """The true class of each row, int64."""
        return np.fromiter((row["label"] for row in rows), dtype=np.int64, count=len(rows))

    def score(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> dict[str, float]:
        """Accuracy, macro F1, Matthews; with two classes also F1 of the last one, as GLUE counts it."""
        matrix = confusion(answers.argmax(axis=-1), gold, len(task.labels))
        scores = {"accuracy": float(np.trace(matrix) / max(1, matrix.sum()))}
        if len(task.labels) == 2:
            scores["f1"] = float(f1_of_classes(matrix)[-1])
        return {**scores, "macro_f1": macro_f1(matrix), "matthews": matthews(matrix)}

    def correct(self, answers: NDArray[Any], gold: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Whether the most probable class is the true one."""
        right: NDArray[np.bool_] = answers.argmax(axis=-1) == gold
        return right

    def weighted_scores(
        self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo, times: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """From the counts of each class in each draw: (draws, classes)."""
        chosen, classes = answers.argmax(axis=-1), len(task.labels)
        right = chosen == gold
        hits = totals(gold[right], classes, times[:, right])
        decided, true = totals(chosen, classes, times), totals(gold, classes, times)
        rows, each = times.sum(axis=1), f1_each(hits, decided, true)
        scores = {"accuracy": hits.sum(axis=1) / rows}
        if classes == 2:
            scores["f1"] = each[:, -1]
        by_chance = (true * decided).sum(axis=1)
        spread = np.sqrt(rows**2 - (decided**2).sum(axis=1)) * np.sqrt(rows**2 - (true**2).sum(axis=1))
        above = hits.sum(axis=1) * rows - by_chance
        matthews_of_draws = np.divide(above, spread, out=np.zeros_like(rows), where=spread > 0)
        return {**scores, "macro_f1": mean_of_present(each, decided + true), "matthews": matthews_of_draws}

    def class_counts(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> ClassCounts | None:
        """The diagonal, the columns and the lines of the confusion matrix."""
        matrix = confusion(answers.argmax(axis=-1), gold, len(task.labels))
        return ClassCounts(np.diag(matrix), matrix.sum(axis=0), matrix.sum(axis=1))

    def same_decision(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Where the most probable class is the same."""
        equal: NDArray[np.bool_] = answers.argmax(axis=-1) == others.argmax(axis=-1)
        return equal

    def distance(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64] | None:
        """The total variation distance of the two distributions: how much probability lies elsewhere, 0 to 1."""
        return total_variation(answers, others)

    def confidence(self, answers: NDArray[Any], gold: NDArray[Any]) -> Confidence | None:
        """One decision a row: the most probable class."""
        right = answers.argmax(axis=-1) == gold
        return Confidence(np.arange(len(gold)), answers.max(axis=-1).astype(np.float64), right)

    def to_json(self, answers: NDArray[Any], task: TaskInfo) -> list[dict[str, Any]]:
        """The class by name, with its probability."""
        best = answers.argmax(axis=-1)
        return [
            {"label": task.labels[index], "probability": float(line[index])}
            for index, line in zip(best, answers, strict=True)
        ]

    def describe(self, answers: NDArray[Any], task: TaskInfo) -> list[str]:
        """`positive (98 %)`."""
        return [f"{found['label']} ({100 * found['probability']:.0f} %)" for found in self.to_json(answers, task)]

    def describe_gold(self, gold: NDArray[Any], task: TaskInfo) -> list[str]:
        """`positive`."""
        return [task.labels[index] for index in gold]
