"""One of several choices for a question or a beginning; rows may have different numbers of choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError, pluralize
from compress.losses import OutputForm, TaskLoss
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Array, Baseline, Confidence, Metric, Row, Rows, Script
from compress.tasks.kind import pad_rows
from compress.tasks.kinds.candidate_kind import CandidateKind, check_list, list_script, split_rows_scores
from compress.tasks.kinds.text_kind import label_column, softmax
from compress.tasks.metrics import total_variation
from compress.tasks.parsing.columns import (
    SKIP_HINT,
    class_name,
    column_value,
    is_missing,
    label_columns,
    parse_list,
    text_value,
    wrong_value,
)

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task

NO_CHOICE = -1.0
"""Pads predictions after the last choice of a row."""


class MultipleChoice(CandidateKind):
    """Predictions are probabilities (rows, most choices), -1 after the last choice of a row.

    ``task.text`` names the question and a column that holds the list of choices, or the question and a column for each
    choice. The answer is a letter (A for the first choice), a whole number counted from ``task.first_label``, or the
    text of the right choice. Where choices have labels of their own, {"text": [...], "label": [...]}, the answer is
    one of those, or the text. Answers that may mean two choices are refused; a number that is no text is an index.
    """

    name = "multiple_choice"
    answer_fields = ("choice", "place", "probability", "probabilities")
    problem = "choice"
    needs_attention = "an answer is judged by reading it together with its question"
    loss = TaskLoss("compress.losses.task.multiple_choice_ce:multiple_choice_ce")
    outputs = OutputForm("compress.losses.tensor_ops.logit_views:choice_view", "softmax", has_target=True)
    hub_pipeline = "multiple-choice"
    baseline = Baseline("a bag of words", "compress.measure.baselines.bag_of_words:bag_of_choices")
    metrics: tuple[Metric, ...] = (Metric("accuracy", is_accuracy=True, needs_varied_labels=False),)
    fields: tuple[str, ...] = ("text", "choices", "label")
    defaults: Mapping[str, Any] = {"text": ["question", "choices"], "label": "answer"}
    text_columns: tuple[int, int | None] = (2, None)
    example = "choice"
    settings: tuple[str, ...] = ("first_label",)
    list_field = "choices"
    min_texts = 2

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """Return the question, its choices, and the index of the right one."""
        texts, names = _choices(raw, task, where)
        choices = check_list(texts, "choice", self.min_texts, where)
        answer = column_value(raw, label_columns(task)[0], task, where)
        index = _choice_index(answer, choices, names, task.first_label, where)
        return {"text": text_value(raw, task.text[0], task, where), "choices": choices, "label": index}

    def parse_input(self, raw: Mapping[str, Any], task: Task, where: str) -> tuple[str, ...]:
        """Return the question and its choices."""
        choices = check_list(_choices(raw, task, where)[0], "choice", self.min_texts, where)
        return text_value(raw, task.text[0], task, where), *choices

    def relevance(self, row: Row) -> Sequence[float]:
        """Return 1 for the right choice."""
        return [float(index == row["label"]) for index in range(len(row["choices"]))]

    def predictions(self, decoded: Sequence[Array], counts: Sequence[int], rows: Rows, task: TaskInfo) -> Array:
        """Return the softmax of each row's scores."""
        return choice_probabilities(split_rows_scores(decoded, counts))

    def gold(self, rows: Rows) -> Array:
        """Return the index of the right choice, int64."""
        return label_column(rows, np.int64)

    def row_scores(self, predictions: Array, gold: Array) -> dict[str, Array]:
        """Return accuracy: whether the right choice was predicted."""
        return {"accuracy": self.correct(predictions, gold)}

    def correct(self, predictions: Array, gold: Array) -> NDArray[np.bool_]:
        """Return whether the right choice is more probable than any other: a tie is wrong."""
        is_gold = np.arange(predictions.shape[1]) == gold[:, None]
        best_of_others = np.where(is_gold, -np.inf, predictions).max(axis=-1)
        return predictions[is_gold] > best_of_others

    def distance(self, predictions: Array, others: Array) -> NDArray[np.float64]:
        """Return the total variation distance of the two distributions, 0 to 1."""
        return total_variation(predictions, others)

    def confidence(self, predictions: Array, gold: Array) -> Confidence:
        """Return one decision per row: the most probable choice."""
        stated = predictions.max(axis=-1).astype(np.float64)
        return Confidence(np.arange(len(gold)), stated, self.correct(predictions, gold))

    def script(self, task: TaskInfo) -> Script:
        """Print the letter of the best choice."""
        line = 'print("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[scores.index(max(scores))], scores)'
        sample = '"a question" "a choice" "another choice"'
        return list_script("the letter of the best choice, and the score of each", line, sample)

    def to_json(self, predictions: Array, task: TaskInfo) -> list[dict[str, Any]]:
        """Return the choice by its letter and its index, with its probability, and those of all choices."""
        rows = []
        for line in predictions:
            index, values = int(line.argmax()), [float(value) for value in line if value != NO_CHOICE]
            best = {"choice": letter(index), "place": index, "probability": values[index]}
            rows.append({**best, "probabilities": values})
        return rows

    def describe(self, predictions: Array, task: TaskInfo) -> list[str]:
        """Return `choice B (61 %)`."""
        rows = self.to_json(predictions, task)
        return [f"choice {row['choice']} ({100 * row['probability']:.0f} %)" for row in rows]

    def describe_gold(self, gold: Array, task: TaskInfo) -> list[str]:
        """Return `choice B`."""
        return [f"choice {letter(int(index))}" for index in gold]


def choice_probabilities(scores: Sequence[Array]) -> NDArray[np.float32]:
    """Return the softmax of each row's scores (rows, most choices), with -1 after the last choice of a row."""
    padded = pad_rows(scores, -np.inf, np.float64)
    return np.where(np.isneginf(padded), NO_CHOICE, softmax(padded)).astype(np.float32)


def letter(index: int) -> str:
    """Return A for the first choice; its number beyond Z."""
    return ascii_uppercase[index] if index < len(ascii_uppercase) else str(index + 1)


def _choices(raw: Mapping[str, Any], task: Task, where: str) -> tuple[Sequence[Any], Sequence[str] | None]:
    """Return the choices, and their own labels if they have any."""
    if len(task.text) > 2:
        return [column_value(raw, name, task, where) for name in task.text[1:]], None
    value = column_value(raw, task.text[1], task, where)
    given = value if isinstance(value, Mapping) else {"text": value}
    texts, names = parse_list(given.get("text")), given.get("label")
    if texts is None:
        hint = 'write a list (["one", "two"]), or name a column for each choice: text: [question, choice1, choice2]'
        raise wrong_value(value, f"column '{task.text[1]}'", "a list of choices", where, hint)
    if names is not None and not isinstance(names, (list, tuple)):
        raise wrong_value(names, "the labels of the choices", "a list", where, SKIP_HINT)
    if names is not None and len(names) != len(texts):
        counts = f"{pluralize(len(texts), 'choice')} and {pluralize(len(names), 'label')} of them"
        raise DataError(f"{where}: the row has {counts}.", hint=SKIP_HINT)
    return texts, None if names is None else list(map(class_name, names))


def _choice_index(value: Any, choices: Sequence[str], names: Sequence[str] | None, first: int, where: str) -> int:
    """Return the index of the right choice."""
    matches = [] if is_missing(value) else _matching_choices(value, choices, names, first)
    if len(matches) == 1:
        return matches[0]
    if len(matches) > 1:
        raise DataError(
            f"{where}: the answer {str(value)[:40]!r} may mean choice {' or '.join(map(letter, matches))}.",
            hint=f'write the letter, or the index as a number (in JSON 2, not "2"), whichever is no text; {SKIP_HINT}',
        )
    count = len(choices)
    known = ", ".join(names) if names is not None else f"A to {letter(count - 1)}, {first} to {first + count - 1}"
    raise wrong_value(value, "the answer", f"one of the choices ({known}, or the text of one)", where, SKIP_HINT)


def _matching_choices(value: Any, choices: Sequence[str], names: Sequence[str] | None, first: int) -> list[int]:
    """Return every choice that an answer may mean: by its label, else by letter or number, or by its own text.

    A label, and a number that is no text, mean no other choice's text.
    """
    answer = class_name(value).strip()
    if names is None:
        letters = [ascii_uppercase[index : index + 1] for index in range(len(choices))]
        marks = [{mark, mark.lower(), str(first + index)} for index, mark in enumerate(letters)]
    else:
        marks = [{name} for name in names]
    marked = {index for index, accepted in enumerate(marks) if answer in accepted}
    texts = {index for index, choice in enumerate(choices) if choice.strip() == answer}
    is_certain = names is not None or (isinstance(value, (int, float)) and not isinstance(value, bool))
    return sorted(marked if marked and is_certain else marked | texts)
