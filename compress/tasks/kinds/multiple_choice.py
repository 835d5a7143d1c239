"""One of several choices for a question or a beginning; rows may have different numbers of choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError, pluralize
from compress.model_info import TaskInfo
from compress.recipe.schema import Task
from compress.tasks.base import Confidence, Metric, Row
from compress.tasks.kinds.candidate_kind import LEAVE_OUT, CandidateKind, checked_texts, of_rows, side_by_side
from compress.tasks.metrics.f1_mcc import total_variation
from compress.tasks.parsing.columns import is_missing, label_columns, label_name, listed, pick, text

BEHIND = -1.0
"""Stands in answers behind the last choice of a row."""


class MultipleChoice(CandidateKind):
    """Answers are probabilities (rows, most choices), -1 behind the last choice of a row.

    ``task.text`` names the question and a column that holds the list of choices, or the question and a column for each
    choice. The answer is a letter (A for the first choice), a whole number counted from ``task.first_label``, or the
    text of the right choice. Choices with labels of their own, {"text": [...], "label": [...]}, are told by those, or
    by the text. What may mean two choices is refused; a number that is no text ("2") means a place.
    """

    name = "multiple_choice"
    problem = "choice"
    metrics: tuple[Metric, ...] = (Metric("accuracy", is_accuracy=True, needs_varied_labels=False),)
    fields: tuple[str, ...] = ("text", "choices", "label")
    columns: tuple[int, int | None] = (2, None)
    example = "choice"
    settings: tuple[str, ...] = ("first_label",)
    listed = "choices"
    least = 2

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """The question, its choices, and the place of the right one."""
        choices, names = _choices(raw, task, where)
        found = checked_texts(choices, "choice", self.least, where)
        answer = pick(raw, label_columns(task)[0], task, where)
        place = _place(answer, found, names, task.first_label, where)
        return {"text": text(raw, task.text[0], task, where), "choices": found, "label": place}

    def parse_input(self, raw: Mapping[str, Any], task: Task, where: str) -> tuple[str, ...]:
        """The question and its choices."""
        choices = checked_texts(_choices(raw, task, where)[0], "choice", self.least, where)
        return text(raw, task.text[0], task, where), *choices

    def marks(self, row: Row) -> Sequence[float]:
        """1 for the right choice."""
        return [float(place == row["label"]) for place in range(len(row["choices"]))]

    def predictions(
        self, decided: Sequence[NDArray[Any]], counts: Sequence[int], rows: Sequence[Row], task: TaskInfo
    ) -> NDArray[Any]:
        """The softmax of each row's scores."""
        return probabilities(of_rows(decided, counts))

    def gold(self, rows: Sequence[Row]) -> NDArray[Any]:
        """The place of the right choice, int64."""
        return np.fromiter((row["label"] for row in rows), dtype=np.int64, count=len(rows))

    def score(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> dict[str, float]:
        """The share of rows with the right choice."""
        return {"accuracy": float(_right(answers, gold).mean()) if len(gold) else 0.0}

    def correct(self, answers: NDArray[Any], gold: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Whether the right choice is more probable than any other: a tie is no decision, so it is not right."""
        return _right(answers, gold)

    def weighted_scores(
        self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo, times: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """Each row counts as often as it was drawn."""
        return {"accuracy": times @ _right(answers, gold) / times.sum(axis=1)}

    def same_decision(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Where the most probable choice is the same."""
        equal: NDArray[np.bool_] = answers.argmax(axis=-1) == others.argmax(axis=-1)
        return equal

    def distance(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64] | None:
        """The total variation distance of the two distributions: how much probability lies elsewhere, 0 to 1."""
        return total_variation(answers, others)

    def confidence(self, answers: NDArray[Any], gold: NDArray[Any]) -> Confidence | None:
        """One decision a row: the most probable choice."""
        return Confidence(np.arange(len(gold)), answers.max(axis=-1).astype(np.float64), _right(answers, gold))

    def to_json(self, answers: NDArray[Any], task: TaskInfo) -> list[dict[str, Any]]:
        """The choice by its letter and its place from 0, with its probability, and those of all choices."""
        found = []
        for line in answers:
            place, every = int(line.argmax()), [float(value) for value in line if value != BEHIND]
            found.append({"choice": letter(place), "place": place, "probability": every[place], "probabilities": every})
        return found

    def describe(self, answers: NDArray[Any], task: TaskInfo) -> list[str]:
        """`choice B (61 %)`."""
        told = self.to_json(answers, task)
        return [f"choice {found['choice']} ({100 * found['probability']:.0f} %)" for found in told]

    def describe_gold(self, gold: NDArray[Any], task: TaskInfo) -> list[str]:
        """`choice B`."""
        return [f"choice {letter(int(place))}" for place in gold]


def probabilities(scores: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
    """The softmax of each row's scores (rows, most choices), with -1 behind the last choice of a row."""
    padded = side_by_side(scores, -np.inf)
    odds = np.exp(padded - padded.max(axis=-1, keepdims=True))
    shares = odds / odds.sum(axis=-1, keepdims=True)
    return np.where(np.isneginf(padded), BEHIND, shares).astype(np.float32)


def letter(place: int) -> str:
    """A for the first choice; its number where letters do not reach."""
    return ascii_uppercase[place] if place < len(ascii_uppercase) else str(place + 1)


def _right(answers: NDArray[Any], gold: NDArray[Any]) -> NDArray[np.bool_]:
    """Where the right choice is more probable than every other."""
    places = np.arange(answers.shape[1]) == gold[:, None]
    best_of_others = np.where(places, -np.inf, answers).max(axis=-1)
    right: NDArray[np.bool_] = answers[places] > best_of_others
    return right


def _choices(raw: Mapping[str, Any], task: Task, where: str) -> tuple[Sequence[Any], Sequence[str] | None]:
    """The choices, and the labels they have of their own if any."""
    if len(task.text) > 2:
        return [pick(raw, name, task, where) for name in task.text[1:]], None
    value = pick(raw, task.text[1], task, where)
    if isinstance(value, Mapping) and isinstance(value.get("text"), (list, tuple)):
        names = value.get("label")
        if not isinstance(names, (list, tuple)):
            return value["text"], None
        if len(names) != len(value["text"]):
            told = f"{pluralize(len(value['text']), 'choice')} and {pluralize(len(names), 'label')} of them"
            raise DataError(f"{where}: the row has {told}.", hint=LEAVE_OUT)
        return value["text"], [label_name(name) for name in names]
    found = listed(value)
    if found is not None:
        return found, None
    raise DataError(
        f"{where}: column '{task.text[1]}' holds {str(value)[:40]!r} where a list of choices is expected.",
        hint='write a list (["one", "two"]), or name a column for each choice: text: [question, choice1, choice2]',
    )


def _place(value: Any, choices: Sequence[str], names: Sequence[str] | None, first: int, where: str) -> int:
    """The place of the right choice."""
    if is_missing(value):
        raise DataError(f"{where}: the answer is empty.", hint="every row of train, select and test needs its answer")
    told = label_name(value).strip()
    places = _places(value, choices, names, first)
    if len(places) == 1:
        return places[0]
    if len(places) > 1:
        raise DataError(
            f"{where}: the answer {told[:40]!r} may mean choice {' or '.join(letter(place) for place in places)}.",
            hint=f'write the letter, or the place as a number (in JSON 2, not "2"), whichever is no text; {LEAVE_OUT}',
        )
    listing = ", ".join(names) if names is not None else _known(len(choices), first)
    raise DataError(
        f"{where}: the answer {told[:40]!r} is none of the choices ({listing}, or the text of one).", hint=LEAVE_OUT
    )


def _places(value: Any, choices: Sequence[str], names: Sequence[str] | None, first: int) -> list[int]:
    """Every choice that an answer may mean: by its label, else by letter or number, or by its own text.

    A label, and a number that is no text, mean no other choice's text.
    """
    told = label_name(value).strip()
    if names is not None:
        marked, certain = {place for place, name in enumerate(names) if name == told}, True
    else:
        marked, certain = _counted(told, first), isinstance(value, (int, float)) and not isinstance(value, bool)
    marked &= set(range(len(choices)))
    texts = {place for place, choice in enumerate(choices) if choice.strip() == told}
    return sorted(marked if marked and certain else marked | texts)


def _counted(told: str, first: int) -> set[int]:
    """The place that a letter or a number stands for."""
    if len(told) == 1 and told.upper() in ascii_uppercase:
        return {ascii_uppercase.index(told.upper())}
    return {int(told) - first} if told.isascii() and told.isdigit() else set()


def _known(choices: int, first: int) -> str:
    return f"A to {letter(choices - 1)}, {first} to {first + choices - 1}"
