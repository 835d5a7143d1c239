"""Which of many documents answer a query, found by embeddings: a document's is made once, a query's when it is asked.

A row of train is a query with a document that answers it, and documents that do not. A row of select or test is a query
with the numbers of the documents that answer it, among those that `data/splits/corpus.py` keeps beside the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError, UsageError
from compress.model_info import TaskInfo
from compress.recipe.schema import Task
from compress.tasks.base import Encode, Example, Metric, Row, TaskInput
from compress.tasks.decoding.nearest_neighbours import nearest_documents
from compress.tasks.kinds.embedding_kind import EmbeddingKind, readable_embeddings, text_example
from compress.tasks.kinds.text_kind import parts_of
from compress.tasks.metrics.ir_metrics import gains, overlap, reciprocal_ranks, relevant, shares_found
from compress.tasks.parsing.columns import has_column, is_missing, label_columns, listed, pick, text

QUERY, POSITIVE, NEGATIVE = 0, 1, 2
"""What an example is of its row: `part` in a batch."""

KEPT = 100
"""Documents found that an answer keeps of each query."""
TOLD, TOLD_IN_WORDS = 10, 3
"""Documents found that are told of each query."""
NONE = -1
"""Fills up the true documents of rows that have fewer than others."""


class Retrieval(EmbeddingKind):
    """Answers are the nearest documents and their cosines, fields `found` and `score` of (rows, up to 100).

    Without documents at hand, as when single texts are handed over, answers are embeddings (rows, D).
    """

    name = "retrieval"
    problem = "retrieval"
    fields: tuple[str, ...] = ("query", "positives", "negatives")
    label_fields: tuple[str, ...] = ("positives", "negatives", "relevant")
    perturbable: tuple[str, ...] = ("query",)
    columns: tuple[int, int | None] = (1, 1)
    settings: tuple[str, ...] = ("pooling", "negatives", "hard_negatives")
    searches = True
    metrics: tuple[Metric, ...] = (
        Metric("mrr", floor=0.0, needs_varied_labels=False),
        Metric("recall_at_1", floor=0.0, needs_varied_labels=False),
        Metric("recall_at_10", floor=0.0, needs_varied_labels=False),
        Metric("recall_at_100", floor=0.0, needs_varied_labels=False),
        Metric("ndcg_at_10", floor=0.0, needs_varied_labels=False),
    )

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """The query, one positive document at least, and negative ones; none of them empty."""
        query = self.parse_input(raw, task, where)
        positives = _documents(raw, label_columns(task)[0], task, where)
        if not positives:
            raise DataError(f"{where}: there is no document that answers the query.")
        # Only rows that are learnt from need negatives, so files of other roles may go without the column.
        given = task.negatives is not None and has_column(raw, task.negatives, task)
        negatives = _documents(raw, str(task.negatives), task, where) if given else []
        if both := set(positives) & set(negatives):
            raise DataError(f"{where}: a document stands among the positives and the negatives: {both.pop()[:40]!r}.")
        return {"query": query, "positives": positives, "negatives": negatives}

    def parse_input(self, raw: Mapping[str, Any], task: Task, where: str) -> str:
        """The query, or a document in its column: both are embedded in the same way."""
        query = text(raw, task.text[0], task, where)
        if not query.strip():
            raise DataError(f"{where}: the query is empty.")
        return query

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """No documents."""
        return {}

    def store_rows(self, row: Row, number: Callable[[str], int] | None) -> list[Row]:
        """To learn from, a row for each positive; to be answered, one with the numbers of those documents."""
        if number is None:
            return [{**row, "positives": [positive]} for positive in row["positives"]]
        numbers = [number(document) for document in (*row["positives"], *row["negatives"])]
        return [{"query": row["query"], "relevant": numbers[: len(row["positives"])]}]

    def targets(self, row: Row) -> Iterable[Hashable]:
        """The documents of a row that is learnt from."""
        return (*row.get("positives", ()), *row.get("negatives", ()))

    def to_input(self, row: Row) -> TaskInput:
        """The query."""
        return str(row["query"])

    def from_input(self, given: TaskInput, task: TaskInfo) -> Row:
        """One text, query or document: both are embedded in the same way."""
        parts = parts_of(given)
        if len(parts) != 1 or not isinstance(parts[0], str):
            raise UsageError(f"{task.name} embeds one text, a query or a document; got {given!r}.")
        return {"query": parts[0]}

    def examples(self, row: Row, task: TaskInfo, encode: Encode) -> list[Example]:
        """A document; or the query and, where the row has them, its documents with a cross-encoder's `scores`."""
        if "document" in row:
            return [text_example(row["document"], task, encode, part=POSITIVE)]
        positives, negatives = row.get("positives", ()), row.get("negatives", ())
        texts = [row["query"], *positives, *negatives]
        parts = [QUERY, *[POSITIVE] * len(positives), *[NEGATIVE] * len(negatives)]
        found = [text_example(each, task, encode, part=part) for each, part in zip(texts, parts, strict=True)]
        if row.get("scores") is None:
            return found
        scores = [0.0, *map(float, row["scores"])]
        return [{**example, "scores": score} for example, score in zip(found, scores, strict=True)]

    def predictions(
        self, decided: Sequence[NDArray[Any]], counts: Sequence[int], rows: Sequence[Row], task: TaskInfo
    ) -> NDArray[Any]:
        """The embedding of each query (rows, D), which `search` takes."""
        firsts = np.cumsum([0, *counts[:-1]])
        return np.stack([decided[int(first)] for first in firsts])

    def search(self, queries: NDArray[Any], documents: NDArray[Any], task: TaskInfo) -> NDArray[Any]:
        """The hundred nearest documents of each query, exactly."""
        return found_documents(*nearest_documents(queries, documents, KEPT))

    def gold(self, rows: Sequence[Row]) -> NDArray[Any]:
        """The numbers of the documents that answer each row's query, in whichever row they are named.

        int32 (rows, most of them), -1 behind the last.
        """
        right = defaultdict[str, dict[int, None]](dict)
        for row in rows:
            right[row["query"]].update(dict.fromkeys(row["relevant"]))
        gold = np.full((len(rows), max(map(len, right.values()), default=1)), NONE, np.int32)
        for line, row in zip(gold, rows, strict=True):
            numbers = list(right[row["query"]])
            line[: len(numbers)] = numbers
        return gold

    def score(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> dict[str, float]:
        """Means over the queries of what `values` tells of each."""
        values = self.values(answers, gold)
        return {name: float(each.mean()) if len(each) else 0.0 for name, each in values.items()}

    def values(self, answers: NDArray[Any], gold: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
        """All metrics of each query (rows,); `mrr` looks at the hundred documents that are kept."""
        right, true = relevant(answers["found"], gold), (gold != NONE).sum(axis=1)
        return {
            "mrr": reciprocal_ranks(right),
            **{f"recall_at_{first}": shares_found(right, true, first) for first in (1, 10, 100)},
            "ndcg_at_10": gains(right, true, 10),
        }

    def weighted_scores(
        self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo, times: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """Means in which each query counts as often as it was drawn."""
        rows = times.sum(axis=1)
        return {name: times @ each / rows for name, each in self.values(answers, gold).items()}

    def correct(self, answers: NDArray[Any], gold: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Whether the first document found is an answer."""
        right: NDArray[np.bool_] = relevant(answers["found"][:, :1], gold)[:, 0]
        return right

    def same_decision(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Whether both found the same document first."""
        same: NDArray[np.bool_] = answers["found"][:, 0] == others["found"][:, 0]
        return same

    def distance(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64] | None:
        """How little the first ten documents overlap, from 0 for the same order to 1 where none is the same."""
        apart: NDArray[np.float64] = 1.0 - overlap(answers["found"][:, :TOLD], others["found"][:, :TOLD])
        return apart

    def to_json(self, answers: NDArray[Any], task: TaskInfo) -> list[dict[str, Any]]:
        """The ten nearest documents by number and their scores; or the embedding where there are no documents."""
        if answers.dtype.names is None:
            return readable_embeddings(answers)
        return [
            {"documents": line["found"][:TOLD].tolist(), "scores": line["score"][:TOLD].tolist()} for line in answers
        ]

    def describe(self, answers: NDArray[Any], task: TaskInfo) -> list[str]:
        """`documents 17, 4, 90`, the nearest first."""
        return [_listed(line) for line in answers["found"][:, :TOLD_IN_WORDS].tolist()]

    def describe_gold(self, gold: NDArray[Any], task: TaskInfo) -> list[str]:
        """`document 17`."""
        return [_listed([number for number in line if number != NONE]) for line in gold.tolist()]


def found_documents(found: NDArray[Any], scores: NDArray[Any]) -> NDArray[Any]:
    """Document numbers (rows, K) and their scores as one array of answers."""
    width = found.shape[1]
    answers = np.zeros(len(found), dtype=[("found", np.int32, (width,)), ("score", np.float32, (width,))])
    answers["found"], answers["score"] = found, scores
    return answers


def _documents(raw: Mapping[str, Any], column: str, task: Task, where: str) -> list[str]:
    """The texts in a cell, one or a list of them, each once; a blank cell holds none."""
    value = pick(raw, column, task, where)
    found = [] if is_missing(value) else listed(value, str)
    every = [value] if found is None else found
    texts = [text({column: each}, column, task, where) for each in every]
    if not all(each.strip() for each in texts):
        raise DataError(f"{where}: column '{column}' holds an empty document.")
    return list(dict.fromkeys(texts))


def _listed(numbers: Sequence[int]) -> str:
    return f"document{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
