"""Candidates for a question in the order in which they answer it, by a model that reads both together.

Scores are means over questions, as trec_eval counts them: average precision (the mean, over the right candidates, of
the share of right ones down to there), the reciprocal rank of the first right one, and nDCG (Järvelin and Kekäläinen
2002, gains are the labels themselves). Candidates with equal scores are taken in the worst order, wrong ones first: a
model that gives all the same score has ranked nothing, whatever the order of the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError, pluralize
from compress.model_info import TaskInfo
from compress.recipe.schema import Task
from compress.tasks.base import Metric, RawRow, Row
from compress.tasks.kinds.candidate_kind import LEAVE_OUT, CandidateKind, checked_texts, of_rows, side_by_side
from compress.tasks.metrics.ir_metrics import reciprocal_ranks
from compress.tasks.parsing.columns import is_missing, label_columns, label_name, pick, text

BEHIND = float(np.finfo(np.float32).min)
"""Stands in answers behind the last candidate of a row; no score is as low."""
NO_LABEL = -1.0
"""Stands in gold behind the last candidate of a row."""
DEPTH = 10
"""Candidates that nDCG looks at."""
TOLD = 5
"""Candidates that are told of each answer."""


class Ranking(CandidateKind):
    """Answers are scores (rows, most candidates), the lowest number there is behind the last candidate of a row.

    A raw row is a question with one candidate and its label, 0 for a wrong one and more for right ones; rows with the
    same question stand together in the file and become one. Or it holds lists of candidates and labels.
    """

    name = "ranking"
    problem = "ranking"
    metrics: tuple[Metric, ...] = (
        Metric("map", needs_varied_labels=False),
        Metric("mrr", needs_varied_labels=False),
        Metric("ndcg_at_10", needs_varied_labels=False),
        Metric("precision_at_1", is_accuracy=True, needs_varied_labels=False),
    )
    fields: tuple[str, ...] = ("text", "candidates", "label")
    listed = "candidates"
    example = "candidate"
    least = 1

    def group_lines(self, rows: Iterator[RawRow], task: Task, answered: bool = True) -> Iterator[RawRow]:
        """One row a question, with lists of its candidates and labels; rows that hold lists stay as they are."""
        first = next(rows, None)
        if first is None:
            return iter(())
        every = chain([first], rows)
        if isinstance(pick(first.values, task.text[1], task, first.where), (list, tuple)):
            return every
        return _questions(every, task, answered)

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """The question, its candidates, and how right each one is."""
        candidates, values = (_list(raw, name, task, where) for name in (task.text[1], label_columns(task)[0]))
        if len(candidates) != len(values):
            told = f"{pluralize(len(candidates), 'candidate')} and {pluralize(len(values), 'label')}"
            raise DataError(f"{where}: the row has {told}.")
        found = checked_texts(candidates, "candidate", self.least, where)
        marks = [_mark(value, f"{where}: candidate {number}") for number, value in enumerate(values, 1)]
        if not any(marks):
            raise DataError(f"{where}: no candidate of {len(found)} is right.", hint=LEAVE_OUT)
        return {"text": text(raw, task.text[0], task, where), "candidates": found, "label": marks}

    def parse_input(self, raw: Mapping[str, Any], task: Task, where: str) -> tuple[str, ...]:
        """The question and its candidates."""
        candidates = checked_texts(_list(raw, task.text[1], task, where), "candidate", self.least, where)
        return text(raw, task.text[0], task, where), *candidates

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """No candidate is right."""
        return {"label": [0.0] * len(row["candidates"])}

    def marks(self, row: Row) -> Sequence[float]:
        """As they were given."""
        marks: list[float] = row["label"]
        return marks

    def predictions(
        self, decided: Sequence[NDArray[Any]], counts: Sequence[int], rows: Sequence[Row], task: TaskInfo
    ) -> NDArray[Any]:
        """The scores of each row's candidates."""
        return scores_of_rows(of_rows(decided, counts))

    def gold(self, rows: Sequence[Row]) -> NDArray[Any]:
        """The labels (rows, most candidates), float32, -1 behind the last candidate of a row."""
        return side_by_side([np.asarray(row["label"]) for row in rows], NO_LABEL).astype(np.float32)

    def score(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> dict[str, float]:
        """The means over questions."""
        return {name: float(values.mean()) for name, values in score_of_each(answers, gold).items()}

    def correct(self, answers: NDArray[Any], gold: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Whether the first candidate is a right one."""
        right: NDArray[np.bool_] = ranked(answers, gold)[:, 0] > 0
        return right

    def weighted_scores(
        self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo, times: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """Means in which each question counts as often as it was drawn."""
        each, drawn = score_of_each(answers, gold), times.sum(axis=1)
        return {name: times @ values / drawn for name, values in each.items()}

    def same_decision(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Where the same candidate comes first."""
        equal: NDArray[np.bool_] = answers.argmax(axis=-1) == others.argmax(axis=-1)
        return equal

    def distance(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64] | None:
        """How far candidates moved: Spearman's footrule, from 0 for the same order to 1 for the reverse."""
        moved = np.abs(_places(answers) - _places(others)).sum(axis=-1)
        most = (answers > BEHIND).sum(axis=-1) ** 2 // 2
        share: NDArray[np.float64] = moved / np.maximum(1, most)
        return share

    def to_json(self, answers: NDArray[Any], task: TaskInfo) -> list[dict[str, Any]]:
        """The places of the candidates, from 0, best first; and the score of each as they were given."""
        found = []
        for line in answers:
            scores = line[line > BEHIND]
            order = np.argsort(-scores, kind="stable")
            found.append({"order": order.tolist(), "scores": [float(score) for score in scores]})
        return found

    def describe(self, answers: NDArray[Any], task: TaskInfo) -> list[str]:
        """`candidates 3, 1, 2 …`, best first and counted from 1."""
        return [f"candidates {_numbers(found['order'])}" for found in self.to_json(answers, task)]

    def describe_gold(self, gold: NDArray[Any], task: TaskInfo) -> list[str]:
        """`candidates 2, 5`: those that are right, the best first."""
        orders = (np.argsort(-line, kind="stable")[: int((line > 0).sum())] for line in gold)
        return [f"candidates {_numbers(order.tolist())}" for order in orders]


def scores_of_rows(scores: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
    """Each row's scores (rows, most candidates), with the lowest number there is behind the last of a row."""
    return side_by_side(scores, BEHIND).astype(np.float32)


def ranked(answers: NDArray[Any], gold: NDArray[Any]) -> NDArray[np.float64]:
    """The labels of each row's candidates, best score first, equal scores with the wrong ones first; -1 at the end."""
    order = np.lexsort((gold, -answers.astype(np.float64)), axis=-1)
    labels: NDArray[np.float64] = np.take_along_axis(gold, order, axis=-1).astype(np.float64)
    return labels


def score_of_each(answers: NDArray[Any], gold: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
    """Every metric of every row (rows,); 0 for a row without a right candidate."""
    labels = ranked(answers, gold)
    right, ranks = labels > 0, np.arange(1, labels.shape[1] + 1)
    precision = right.cumsum(axis=1) / ranks
    return {
        "map": (precision * right).sum(axis=1) / np.maximum(1, right.sum(axis=1)),
        "mrr": reciprocal_ranks(right),
        "ndcg_at_10": _ndcg(labels),
        "precision_at_1": right[:, 0].astype(np.float64),
    }


def _ndcg(labels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gains of the first ten, each divided by the logarithm of its rank + 1, in relation to the best order's."""
    gains = np.maximum(labels, 0.0)
    best = -np.sort(-gains, axis=1)
    weights = 1.0 / np.log2(np.arange(2, min(DEPTH, labels.shape[1]) + 2))
    reached, possible = (each[:, :DEPTH] @ weights for each in (gains, best))
    shares: NDArray[np.float64] = np.divide(reached, possible, out=np.zeros_like(reached), where=possible > 0)
    return shares


def _places(answers: NDArray[Any]) -> NDArray[np.intp]:
    """The rank of each candidate in its row, from 0."""
    return np.argsort(np.argsort(-answers.astype(np.float64), axis=-1, kind="stable"), axis=-1)


def _numbers(order: Sequence[int]) -> str:
    return ", ".join(str(place + 1) for place in order[:TOLD]) + (" …" if len(order) > TOLD else "")


def _questions(rows: Iterator[RawRow], task: Task, answered: bool) -> Iterator[RawRow]:
    """Neighbours with the same question as one row, which stands where the first of them does."""
    seen: set[bytes] = set()
    for question, found in groupby(rows, lambda raw: pick(raw.values, task.text[0], task, raw.where)):
        lines = list(found)
        digest = blake2b(repr(question).encode("utf-8", "replace"), digest_size=8).digest()
        if digest in seen:
            raise DataError(
                f"{lines[0].where}: this question stood farther up already, with other questions in between.",
                hint="sort the file so that the candidates of a question follow one another",
            )
        seen.add(digest)
        yield RawRow(lines[0].where, {**lines[0].values, **_listed(lines, task, answered)})


def _listed(lines: Sequence[RawRow], task: Task, answered: bool) -> dict[str, list[Any]]:
    columns = (task.text[1], label_columns(task)[0]) if answered else (task.text[1],)
    return {name: [pick(line.values, name, task, line.where) for line in lines] for name in columns}


def _list(raw: Mapping[str, Any], name: str, task: Task, where: str) -> Sequence[Any]:
    value = pick(raw, name, task, where)
    if not isinstance(value, (list, tuple)):
        raise DataError(f"{where}: column '{name}' holds {str(value)[:40]!r} where other rows hold a list.")
    return value


def _mark(value: Any, where: str) -> float:
    """How right a candidate is: 0 or more."""
    if is_missing(value):
        raise DataError(f"{where} has no label.", hint="every row of train, select and test needs its answer")
    try:
        mark = float(label_name(value)) if not isinstance(value, bool) else float(value)
    except ValueError:
        mark = math.nan
    if not (math.isfinite(mark) and mark >= 0):
        raise DataError(f"{where} has the label {str(value)[:40]!r} where 0 (wrong), 1 (right) or more is expected.")
    return mark
