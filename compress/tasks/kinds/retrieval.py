"""The documents that answer a query, found by embeddings: a document's is computed once, a query's when it comes.

A row of train is a query with a document that answers it, and documents that do not. A row of select or test is a query
with the numbers of the documents that answer it, among those that `data/splits/row_store.py` stores with the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress.batch_arrays import BatchArray
from compress.errors import DataError
from compress.losses import TaskLoss
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Array, Baseline, Encode, Example, Metric, Row, Rows, TaskInput
from compress.tasks.decoding import nearest_documents
from compress.tasks.kinds.embedding_kind import EmbeddingKind, embeddings_to_json
from compress.tasks.kinds.text_kind import check_texts
from compress.tasks.metrics import is_relevant, list_overlap, ndcg, recall_at, reciprocal_ranks
from compress.tasks.parsing.columns import column_value, has_column, is_missing, label_columns, parse_list, text_value

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task

QUERY, POSITIVE, NEGATIVE = 0, 1, 2
"""The role of an example in its row: `part` in a batch."""

MAX_RETRIEVED = 100
"""Documents that a prediction holds of each query."""
SHOWN, SHOWN_IN_TEXT = 10, 3
"""Retrieved documents that are listed for each query."""
NO_DOCUMENT = -1
"""Pads the true documents of rows that have fewer than others."""


class Retrieval(EmbeddingKind):
    """Predictions are the nearest documents and their cosines, fields `found` and `score` of (rows, up to 100).

    Without documents, as when single texts are given to `predict`, predictions are embeddings (rows, D).
    """

    name = "retrieval"
    answer_fields = ("embedding",)
    problem = "retrieval"
    probed_as = "documents"
    loss = TaskLoss("compress.losses.task.in_batch_negatives:in_batch_negatives", compares_rows=True)
    fields: tuple[str, ...] = ("query", "positives", "negatives")
    label_fields: tuple[str, ...] = ("positives", "negatives", "relevant")
    perturbable: tuple[str, ...] = ("query",)
    defaults: Mapping[str, Any] = {"text": ["query"], "label": "positives"}
    text_columns: tuple[int, int | None] = (1, 1)
    settings: tuple[str, ...] = ("pooling", "negatives", "hard_negatives")
    searches = True
    batch_arrays = (BatchArray("part", "example", np.int64), BatchArray("scores", "example", np.float32))
    baseline = Baseline("BM25", "compress.measure.baselines.lexical_search:lexical_search")
    metrics: tuple[Metric, ...] = tuple(
        Metric(name, needs_varied_labels=False)
        for name in ("mrr", "recall_at_1", "recall_at_10", "recall_at_100", "ndcg_at_10")
    )

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """Return the query, at least one positive document, and negative ones; none of them empty."""
        query = self.parse_input(raw, task, where)
        positives = _documents(raw, label_columns(task)[0], task, where)
        if not positives:
            raise DataError(f"{where}: there is no document that answers the query.")
        # Only rows of train need negatives, so files of other roles may go without the column.
        has_negatives = task.negatives is not None and has_column(raw, task.negatives, task)
        negatives = _documents(raw, str(task.negatives), task, where) if has_negatives else []
        if both := set(positives) & set(negatives):
            raise DataError(f"{where}: a document is among both the positives and the negatives: {both.pop()[:40]!r}.")
        return {"query": query, "positives": positives, "negatives": negatives}

    def parse_input(self, raw: Mapping[str, Any], task: Task, where: str) -> str:
        """Return the query, or a document in its column: both are embedded in the same way."""
        query = text_value(raw, task.text[0], task, where)
        if not query.strip():
            raise DataError(f"{where}: the query is empty.")
        return query

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """Return no documents."""
        return {}

    def store_rows(self, row: Row, number: Callable[[str], int] | None) -> list[Row]:
        """Return a row per positive for train, and one with the numbers of its documents for select and test."""
        if number is None:
            return [{**row, "positives": [positive]} for positive in row["positives"]]
        numbers = [number(document) for document in (*row["positives"], *row["negatives"])]
        return [{"query": row["query"], "relevant": numbers[: len(row["positives"])]}]

    def targets(self, row: Row) -> Iterable[Hashable]:
        """Return the documents of a row of train."""
        return (*row.get("positives", ()), *row.get("negatives", ()))

    def to_input(self, row: Row) -> TaskInput:
        """Return the query."""
        return str(row["query"])

    def from_input(self, given: TaskInput, task: TaskInfo) -> Row:
        """Return one text, query or document: both are embedded in the same way."""
        return {"query": check_texts(given, task, 1, 1, "one text, a query or a document")[0]}

    def examples(self, row: Row, task: TaskInfo, encode: Encode) -> list[Example]:
        """Return a document; or the query and, where the row has them, its documents with a cross-encoder's scores."""
        if "document" in row:
            return [encode(row["document"], None, task.max_length).example(part=POSITIVE)]
        positives, negatives = row.get("positives", ()), row.get("negatives", ())
        texts = [row["query"], *positives, *negatives]
        parts = [QUERY, *[POSITIVE] * len(positives), *[NEGATIVE] * len(negatives)]
        scores = [None] * len(texts) if row.get("scores") is None else [0.0, *map(float, row["scores"])]
        return [
            encode(text, None, task.max_length).example(part=part, scores=score)
            for text, part, score in zip(texts, parts, scores, strict=True)
        ]

    def predictions(self, decoded: Sequence[Array], counts: Sequence[int], rows: Rows, task: TaskInfo) -> Array:
        """Return the embedding of each query (rows, D), which `search` takes."""
        firsts = np.cumsum([0, *counts[:-1]])
        return np.stack([decoded[int(first)] for first in firsts])

    def search(self, queries: Array, documents: Array, task: TaskInfo) -> Array:
        """Return the hundred nearest documents of each query, exactly."""
        return retrieved_documents(*nearest_documents(queries, documents, MAX_RETRIEVED))

    def gold(self, rows: Rows) -> Array:
        """Return the numbers of the documents that answer each row's query, in whichever row they are named.

        int32 (rows, most of them), -1 after the last.
        """
        relevant = defaultdict[str, dict[int, None]](dict)
        for row in rows:
            relevant[row["query"]].update(dict.fromkeys(row["relevant"]))
        gold = np.full((len(rows), max(map(len, relevant.values()), default=1)), NO_DOCUMENT, np.int32)
        for line, row in zip(gold, rows, strict=True):
            numbers = list(relevant[row["query"]])
            line[: len(numbers)] = numbers
        return gold

    def row_scores(self, predictions: Array, gold: Array) -> dict[str, Array]:
        """Return all metrics of each query; `mrr` covers the hundred documents of a prediction."""
        relevant, true = is_relevant(predictions["found"], gold), (gold != NO_DOCUMENT).sum(axis=1)
        ideal = np.arange(10) < true[:, None]
        return {
            "mrr": reciprocal_ranks(relevant),
            **{f"recall_at_{depth}": recall_at(relevant, true, depth) for depth in (1, 10, 100)},
            "ndcg_at_10": ndcg(relevant, ideal, 10),
        }

    def correct(self, predictions: Array, gold: Array) -> NDArray[np.bool_]:
        """Return whether the first document retrieved is relevant."""
        return is_relevant(predictions["found"][:, :1], gold)[:, 0]

    def same_decision(self, predictions: Array, others: Array) -> NDArray[np.bool_]:
        """Return whether both retrieved the same document first."""
        return predictions["found"][:, 0] == others["found"][:, 0]

    def distance(self, predictions: Array, others: Array) -> NDArray[np.float64]:
        """Return how little the first ten documents overlap, from 0 for the same order to 1 where none is the same."""
        return 1.0 - list_overlap(predictions["found"][:, :SHOWN], others["found"][:, :SHOWN])

    def to_json(self, predictions: Array, task: TaskInfo) -> list[dict[str, Any]]:
        """Return the ten nearest documents by number and their scores; or the embedding where nothing is searched."""
        if predictions.dtype.names is None:
            return embeddings_to_json(predictions)
        return [
            {"documents": line["found"][:SHOWN].tolist(), "scores": line["score"][:SHOWN].tolist()}
            for line in predictions
        ]

    def describe(self, predictions: Array, task: TaskInfo) -> list[str]:
        """Return `documents 17, 4, 90`, the nearest first."""
        return [_document_list(line) for line in predictions["found"][:, :SHOWN_IN_TEXT].tolist()]

    def describe_gold(self, gold: Array, task: TaskInfo) -> list[str]:
        """Return `document 17`."""
        return [_document_list([number for number in line if number != NO_DOCUMENT]) for line in gold.tolist()]


def retrieved_documents(numbers: Array, scores: Array) -> Array:
    """Return document numbers (rows, K) and their scores as one array of predictions."""
    width = numbers.shape[1]
    predictions = np.zeros(len(numbers), dtype=[("found", np.int32, (width,)), ("score", np.float32, (width,))])
    predictions["found"], predictions["score"] = numbers, scores
    return predictions


def _documents(raw: Mapping[str, Any], column: str, task: Task, where: str) -> list[str]:
    """Return the texts in a cell, one or a list of them, without duplicates; a blank cell holds none."""
    value = column_value(raw, column, task, where)
    listed = [] if is_missing(value) else parse_list(value, str)
    values = [value] if listed is None else listed
    texts = [text_value({column: value}, column, task, where) for value in values]
    if not all(text.strip() for text in texts):
        raise DataError(f"{where}: column '{column}' holds an empty document.")
    return list(dict.fromkeys(texts))


def _document_list(numbers: Sequence[int]) -> str:
    return f"document{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
