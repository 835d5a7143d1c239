"""How alike two texts are, from one embedding of each: the cosine of the angle between them.

Each text is read without the other, so an embedding can be made once and compared with any number of others. A model
that reads both together (`regression`) is usually more exact, and must run anew for every pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError, Problem, UsageError
from compress.model_info import TaskInfo
from compress.recipe.schema import Task
from compress.tasks.base import Encode, Example, Metric, Row, TaskInput
from compress.tasks.kinds.embedding_kind import EmbeddingKind, readable_embeddings, text_example
from compress.tasks.kinds.regression import number, pearson, ranks
from compress.tasks.kinds.text_kind import parts_of
from compress.tasks.metrics.bootstrap_metrics import pearson_of_draws, spearman_of_draws
from compress.tasks.parsing.columns import label_columns, pick, text_fields


class Similarity(EmbeddingKind):
    """Answers are cosines (rows,) from -1 to 1; texts that were handed over alone get embeddings (rows, D)."""

    name = "similarity"
    problem = "similarity"
    fields: tuple[str, ...] = ("text", "text_pair", "label")
    perturbable: tuple[str, ...] = ("text", "text_pair")
    columns: tuple[int, int | None] = (2, 2)
    example = "text"
    metrics: tuple[Metric, ...] = (Metric("spearman", floor=0.0), Metric("pearson", floor=0.0))
    settings: tuple[str, ...] = ("pooling", "range")

    def setting_problems(self, task: Task) -> Iterator[Problem]:
        """A range that goes up."""
        if not task.range[0] < task.range[1]:
            yield Problem(("task", "range"), f"goes from the least score to the greatest, got {list(task.range)}")

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """Two texts that are not empty, and a label within the task's range, on its own scale."""
        fields = text_fields(raw, task, where)
        for name, field in zip(task.text, ("text", "text_pair"), strict=True):
            if not fields[field].strip():
                raise DataError(f"{where}: column '{name}' is empty, and nothing is like an empty text.")
        label = number(pick(raw, label_columns(task)[0], task, where), where)
        low, high = task.range
        if not low <= label <= high:
            raise DataError(
                f"{where}: the score {label:g} is not within {low:g} and {high:g}.",
                hint="task.range: [0, 5] says from where to where the scores go",
            )
        return {**fields, "label": label}

    def to_input(self, row: Row) -> TaskInput:
        """Both texts."""
        return str(row["text"]), str(row["text_pair"])

    def from_input(self, given: TaskInput, task: TaskInfo) -> Row:
        """Two texts to compare, or one to embed."""
        parts = parts_of(given)
        if not 1 <= len(parts) <= 2 or not all(isinstance(part, str) for part in parts):
            expected = f"two texts ({', '.join(task.text)}) to compare, or one to embed"
            raise UsageError(f"{task.name} reads {expected}; got {given!r}.")
        if not all(part.strip() for part in parts):
            raise UsageError(f"nothing is like an empty text; got {given!r}.")
        return {"text": parts[0], "text_pair": parts[1] if len(parts) > 1 else None}

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """The least score."""
        return {"label": task.range[0]}

    def examples(self, row: Row, task: TaskInfo, encode: Encode) -> list[Example]:
        """One example a text; both carry the label, from 0 to 1."""
        numbers = {} if row.get("label") is None else {"label": unit(row["label"], task)}
        texts = [text for text in (row["text"], row.get("text_pair")) if text is not None]
        return [text_example(text, task, encode, **numbers) for text in texts]

    def predictions(
        self, decided: Sequence[NDArray[Any]], counts: Sequence[int], rows: Sequence[Row], task: TaskInfo
    ) -> NDArray[Any]:
        """The cosine of each pair; where all rows are single texts, their embeddings."""
        embeddings = np.stack(decided)
        if set(counts) == {1}:
            return embeddings
        if set(counts) != {2}:
            raise UsageError(f"{task.name} compares pairs or embeds single texts, but not both in one batch.")
        cosines: NDArray[Any] = np.einsum("ij,ij->i", embeddings[0::2], embeddings[1::2]).astype(np.float32)
        return cosines

    def gold(self, rows: Sequence[Row]) -> NDArray[Any]:
        """The true labels on their own scale, float32."""
        return np.fromiter((row["label"] for row in rows), dtype=np.float32, count=len(rows))

    def score(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> dict[str, float]:
        """Correlation of ranks and of values; neither minds that cosines and labels have other scales."""
        given, true = answers.astype(np.float64), gold.astype(np.float64)
        return {"spearman": pearson(ranks(given), ranks(true)), "pearson": pearson(given, true)}

    def weighted_scores(
        self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo, times: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """Correlations in which each row counts as often as it was drawn."""
        given, true = answers.astype(np.float64), gold.astype(np.float64)
        return {"spearman": spearman_of_draws(given, true, times), "pearson": pearson_of_draws(given, true, times)}

    def distance(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64] | None:
        """The difference between the two cosines."""
        apart: NDArray[np.float64] = np.abs(answers.astype(np.float64) - others)
        return apart

    def label_spread(self, gold: NDArray[Any], task: TaskInfo) -> float:
        """The standard deviation of the true labels from 0 to 1, as cosines are."""
        return float(np.std(gold)) / (task.range[1] - task.range[0])

    def to_json(self, answers: NDArray[Any], task: TaskInfo) -> list[dict[str, Any]]:
        """The cosine of a pair as its score, or the embedding of a text."""
        if answers.ndim > 1:
            return readable_embeddings(answers)
        return [{"score": float(value)} for value in answers]

    def describe(self, answers: NDArray[Any], task: TaskInfo) -> list[str]:
        """`0.83`."""
        return [f"{value:.2f}" for value in answers]

    def describe_gold(self, gold: NDArray[Any], task: TaskInfo) -> list[str]:
        """The true label from 0 to 1, as cosines are."""
        return self.describe(np.array([unit(value, task) for value in gold.tolist()]), task)


def unit(label: float, task: TaskInfo) -> float:
    """A label from the task's range as a number from 0 to 1."""
    low, high = task.range
    return (label - low) / (high - low)
