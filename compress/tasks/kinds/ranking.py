"""Candidates for a question in the order in which they answer it, by a model that reads both together.

Scores are means over questions, as trec_eval counts them: average precision (the mean, over the right candidates, of
the share of right ones up to there), the reciprocal rank of the first right one, and nDCG (gains are the labels
themselves). Candidates with equal scores are taken in the worst order, wrong ones first: a model that gives all the
same score has ranked nothing, whatever the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError, pluralize
from compress.losses import OutputForm, TaskLoss
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Array, Baseline, Metric, RawRow, Row, Rows, Script
from compress.tasks.kind import pad_rows
from compress.tasks.kinds.candidate_kind import CandidateKind, check_list, list_script, split_rows_scores
from compress.tasks.metrics import ndcg, reciprocal_ranks
from compress.tasks.parsing.columns import SKIP_HINT, column_value, label_columns, parse_number, text_value, wrong_value

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task

NO_CANDIDATE = float(np.finfo(np.float32).min)
"""Pads predictions after the last candidate of a row; no score is as low."""
NO_LABEL = -1.0
"""Pads gold after the last candidate of a row."""
SHOWN = 5
"""Candidates that a description lists."""


class Ranking(CandidateKind):
    """Predictions are scores (rows, most candidates), the lowest float32 after the last candidate of a row.

    A raw row is a question with one candidate and its label, 0 for a wrong one and more for right ones; consecutive
    rows with the same question become one. Or it holds lists of candidates and labels.
    """

    name = "ranking"
    defaults: Mapping[str, Any] = {"text": ["query", "candidate"], "label": "label"}
    answer_fields = ("order", "scores")
    problem = "ranking"
    training_version = 2
    loss = TaskLoss("compress.losses.task.listwise_ce:listwise_ce")
    outputs = OutputForm("compress.losses.tensor_ops.logit_views:choice_view", "softmax")
    hub_pipeline = "text-ranking"
    sentence_transformers = "CrossEncoder"
    baseline = Baseline("BM25", "compress.measure.baselines.lexical_search:lexical_ranking")
    metrics: tuple[Metric, ...] = (
        *(Metric(name, needs_varied_labels=False) for name in ("map", "mrr", "ndcg_at_10")),
        Metric("precision_at_1", is_accuracy=True, needs_varied_labels=False),
    )
    fields: tuple[str, ...] = ("text", "candidates", "label")
    list_field = "candidates"
    example = "candidate"
    min_texts = 1

    def group_lines(self, rows: Iterator[RawRow], task: Task, labelled: bool = True) -> Iterator[RawRow]:
        """Return one row per question, with lists of its candidates and labels; rows that hold lists stay unchanged."""
        first = next(rows, None)
        every = rows if first is None else chain([first], rows)
        if first and isinstance(column_value(first.values, task.text[1], task, first.where), (list, tuple)):
            yield from every
            return
        seen: set[bytes] = set()
        columns = (task.text[1], label_columns(task)[0]) if labelled else (task.text[1],)
        for question, group in groupby(every, lambda raw: column_value(raw.values, task.text[0], task, raw.where)):
            lines = list(group)
            where = lines[0].where
            digest = blake2b(repr(question).encode("utf-8", "replace"), digest_size=8).digest()
            if digest in seen:
                hint = "sort the file so that the candidates of a question follow one another"
                raise DataError(f"{where}: this question occurred before, with other questions in between.", hint=hint)
            seen.add(digest)
            lists = {name: [column_value(line.values, name, task, line.where) for line in lines] for name in columns}
            yield RawRow(where, {**lines[0].values, **lists})

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """Return the question, its candidates, and how right each one is."""
        texts, values = (_list_value(raw, name, task, where) for name in (task.text[1], label_columns(task)[0]))
        if len(texts) != len(values):
            counts = f"{pluralize(len(texts), 'candidate')} and {pluralize(len(values), 'label')}"
            raise DataError(f"{where}: the row has {counts}.")
        candidates = check_list(texts, "candidate", self.min_texts, where)
        marks = [
            _parse_relevance(value, f"the label of candidate {number}", where) for number, value in enumerate(values, 1)
        ]
        if not any(marks):
            raise DataError(f"{where}: no candidate of {len(candidates)} is right.", hint=SKIP_HINT)
        return {"text": text_value(raw, task.text[0], task, where), "candidates": candidates, "label": marks}

    def parse_input(self, raw: Mapping[str, Any], task: Task, where: str) -> tuple[str, ...]:
        """Return the question and its candidates."""
        candidates = check_list(_list_value(raw, task.text[1], task, where), "candidate", self.min_texts, where)
        return text_value(raw, task.text[0], task, where), *candidates

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """Return no right candidate."""
        return {"label": [0.0] * len(row["candidates"])}

    def relevance(self, row: Row) -> Sequence[float]:
        """Return the labels as given."""
        return row["label"]

    def predictions(self, decoded: Sequence[Array], counts: Sequence[int], rows: Rows, task: TaskInfo) -> Array:
        """Return the scores of each row's candidates."""
        return pad_scores(split_rows_scores(decoded, counts))

    def gold(self, rows: Rows) -> Array:
        """Return the labels (rows, most candidates), float32, -1 after the last candidate of a row."""
        return pad_rows([row["label"] for row in rows], NO_LABEL, np.float32)

    def row_scores(self, predictions: Array, gold: Array) -> dict[str, Array]:
        """Return every metric of each question; 0 for one without a right candidate."""
        labels = ranked_labels(predictions, gold)
        relevant, ranks = labels > 0, np.arange(1, labels.shape[1] + 1)
        precision, gains = relevant.cumsum(axis=1) / ranks, np.maximum(labels, 0.0)
        return {
            "map": (precision * relevant).sum(axis=1) / np.maximum(1, relevant.sum(axis=1)),
            "mrr": reciprocal_ranks(relevant),
            "ndcg_at_10": ndcg(gains, -np.sort(-gains, axis=1), 10),
            "precision_at_1": relevant[:, 0],
        }

    def correct(self, predictions: Array, gold: Array) -> NDArray[np.bool_]:
        """Return whether the first candidate is a right one."""
        return ranked_labels(predictions, gold)[:, 0] > 0

    def distance(self, predictions: Array, others: Array) -> NDArray[np.float64]:
        """Return how far candidates moved: Spearman's footrule, from 0 for the same order to 1 for the reverse."""
        moved = np.abs(_ranks(predictions) - _ranks(others)).sum(axis=-1)
        largest = (predictions > NO_CANDIDATE).sum(axis=-1) ** 2 // 2
        return moved / np.maximum(1, largest)

    def script(self, task: TaskInfo) -> Script:
        """Print the indices of the candidates, best first."""
        line = "print(sorted(range(len(scores)), key=lambda index: -scores[index]), scores)"
        prints = "the candidates by falling score, counted from 0, and the score of each"
        return list_script(prints, line, '"a query" "a candidate" "another candidate"')

    def to_json(self, predictions: Array, task: TaskInfo) -> list[dict[str, Any]]:
        """Return the indices of the candidates, best first; and the score of each in the order given."""
        rows = []
        for line in predictions:
            scores = line[line > NO_CANDIDATE]
            order = np.argsort(-scores, kind="stable")
            rows.append({"order": order.tolist(), "scores": [float(score) for score in scores]})
        return rows

    def describe(self, predictions: Array, task: TaskInfo) -> list[str]:
        """Return `candidates 3, 1, 2 …`, best first and counted from 1."""
        return [f"candidates {_numbers(row['order'])}" for row in self.to_json(predictions, task)]

    def describe_gold(self, gold: Array, task: TaskInfo) -> list[str]:
        """Return `candidates 2, 5`: the right ones, the best first."""
        orders = (np.argsort(-line, kind="stable")[: int((line > 0).sum())] for line in gold)
        return [f"candidates {_numbers(order.tolist())}" for order in orders]


def pad_scores(scores: Sequence[Array]) -> NDArray[np.float32]:
    """Return each row's scores (rows, most candidates), padded with the lowest float32."""
    return pad_rows(scores, NO_CANDIDATE, np.float32)


def ranked_labels(predictions: Array, gold: Array) -> NDArray[np.float64]:
    """Return the labels of each row's candidates, best score first, wrong ones first among equals; -1 at the end."""
    order = np.lexsort((gold, -predictions.astype(np.float64)), axis=-1)
    return np.take_along_axis(gold, order, axis=-1).astype(np.float64)


def _ranks(predictions: Array) -> NDArray[np.intp]:
    """Return the rank of each candidate in its row, from 0."""
    return np.argsort(np.argsort(-predictions.astype(np.float64), axis=-1, kind="stable"), axis=-1)


def _numbers(order: Sequence[int]) -> str:
    return ", ".join(str(index + 1) for index in order[:SHOWN]) + (" …" if len(order) > SHOWN else "")


def _list_value(raw: Mapping[str, Any], name: str, task: Task, where: str) -> Sequence[Any]:
    value = column_value(raw, name, task, where)
    if not isinstance(value, (list, tuple)):
        raise wrong_value(value, f"column '{name}'", "a list, as in other rows,", where)
    return value


def _parse_relevance(value: Any, what: str, where: str) -> float:
    """Return how right a candidate is: 0 or more."""
    expected = "0 (wrong), 1 (right) or more"
    mark = parse_number(int(value) if isinstance(value, bool) else value, what, where, expected)
    if mark < 0:
        raise wrong_value(value, what, expected, where)
    return mark
