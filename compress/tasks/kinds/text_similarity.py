"""How alike two texts are, from one embedding of each: the cosine of the angle between them.

Each text is encoded without the other, so an embedding can be computed once and compared with any number of others. A
model that reads both together (`regression`) is usually more exact, and must run anew for every pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError, Problem, UsageError
from compress.losses import TaskLoss
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Array, Encode, Example, Metric, Row, Rows, TaskInput
from compress.tasks.kinds.embedding_kind import EmbeddingKind, embeddings_to_json
from compress.tasks.kinds.regression import Regression, correlation_scores
from compress.tasks.kinds.text_kind import check_texts
from compress.tasks.metrics import Scores, Weights

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task


class Similarity(EmbeddingKind, Regression):
    """Predictions are cosines (rows,) from -1 to 1; for single texts they are embeddings (rows, D).

    Rows, labels and their distances are those of `regression`.
    """

    name = "similarity"
    answer_fields = ("score",)
    answer_form = ""
    problem = "similarity"
    probed_as = "pair"
    loss = TaskLoss("compress.losses.task.cosine_mse:cosine_mse")
    defaults: Mapping[str, Any] = {"text": ["sentence1", "sentence2"], "label": "score"}
    text_columns: tuple[int, int | None] = (2, 2)
    needs_every_text = True
    reads_one_text = True
    example = "text"
    metrics: tuple[Metric, ...] = (Metric("spearman"), Metric("pearson"))
    settings: tuple[str, ...] = ("pooling", "range")

    def setting_problems(self, task: Task) -> Iterator[Problem]:
        """Yield a range that does not ascend."""
        if not task.range[0] < task.range[1]:
            yield Problem(("task", "range"), f"goes from the least score to the greatest, got {list(task.range)}")

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """Return two non-empty texts, and a label within the task's range, on its own scale."""
        fields = super().read_row(raw, task, labels, where)
        for name, text in zip(task.text, (fields["text"], fields["text_pair"]), strict=True):
            if not text.strip():
                raise DataError(f"{where}: column '{name}' is empty, and nothing is similar to an empty text.")
        low, high = task.range
        if not low <= fields["label"] <= high:
            hint = "task.range gives the least and the greatest score, e.g. [0, 5]"
            raise DataError(f"{where}: the score {fields['label']:g} is not between {low:g} and {high:g}.", hint=hint)
        return fields

    def from_input(self, given: TaskInput, task: TaskInfo) -> Row:
        """Return two texts to compare, or one to embed."""
        expected = f"two texts ({', '.join(task.text)}) to compare, or one to embed"
        texts = check_texts(given, task, 1, 2, expected)
        if not all(text.strip() for text in texts):
            raise UsageError(f"nothing is similar to an empty text; got {given!r}.")
        return {"text": texts[0], "text_pair": texts[1] if len(texts) > 1 else None}

    def empty_answer(self, given: TaskInput) -> dict[str, Any]:
        """Return no score of two texts, or no embedding of one."""
        return {"score": None} if isinstance(given, (tuple, list)) and len(given) > 1 else {"embedding": None}

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """Return the least score."""
        return {"label": task.range[0]}

    def examples(self, row: Row, task: TaskInfo, encode: Encode) -> list[Example]:
        """Return one example per text; both have the label, scaled to 0 to 1."""
        label = None if row.get("label") is None else scale_label(row["label"], task)
        texts = [text for text in (row["text"], row.get("text_pair")) if text is not None]
        return [encode(text, None, task.max_length).example(label=label) for text in texts]

    def predictions(self, decoded: Sequence[Array], counts: Sequence[int], rows: Rows, task: TaskInfo) -> Array:
        """Return the cosine of each pair; where all rows are single texts, their embeddings."""
        embeddings = np.stack(decoded)
        if set(counts) == {1}:
            return embeddings
        if set(counts) != {2}:
            raise UsageError(f"{task.name} compares pairs or embeds single texts, but not both in one batch.")
        norms = np.linalg.norm(embeddings, axis=1, keepdims=True)  # models of others may not normalise
        units = embeddings / np.maximum(norms, np.finfo(np.float32).tiny)  # a text without known pieces has no length
        return np.einsum("ij,ij->i", units[0::2], units[1::2]).astype(np.float32)

    def weighted_scores(self, predictions: Array, gold: Array, task: TaskInfo, weights: Weights) -> dict[str, Scores]:
        """Return the correlation of ranks and of values."""
        return correlation_scores(predictions, gold, weights)

    def errors(self, predictions: Array, gold: Array, task: TaskInfo) -> NDArray[np.float64]:
        """Return the difference of the cosine from the true label, scaled to 0 to 1."""
        return self.distance(predictions, np.array([scale_label(value, task) for value in gold.tolist()]))

    def label_spread(self, gold: Array, task: TaskInfo) -> float:
        """Return the standard deviation of the true labels scaled to 0 to 1, the scale of cosines."""
        return float(np.std(gold)) / (task.range[1] - task.range[0])

    def to_json(self, predictions: Array, task: TaskInfo) -> list[dict[str, Any]]:
        """Return the cosine of a pair as its score, or the embedding of a text."""
        return embeddings_to_json(predictions) if predictions.ndim > 1 else super().to_json(predictions, task)

    def describe(self, predictions: Array, task: TaskInfo) -> list[str]:
        """Return `0.83`."""
        return [f"{value:.2f}" for value in predictions]

    def describe_gold(self, gold: Array, task: TaskInfo) -> list[str]:
        """Return the true label scaled to 0 to 1, the scale of cosines."""
        return self.describe(np.array([scale_label(value, task) for value in gold.tolist()]), task)


def scale_label(label: float, task: TaskInfo) -> float:
    """Return a label of the task's range as a number from 0 to 1."""
    low, high = task.range
    return (label - low) / (high - low)
