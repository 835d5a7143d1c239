"""What kinds share whose rows are a question with a list of texts, each scored on its own by one shared head.

Each text gives one example, the question and the text as a pair, and the model gives it one number. Rows may have
lists of different lengths: answers are arrays as wide as the longest list, filled up behind the end of the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError, UsageError, pluralize
from compress.model_info import TaskInfo
from compress.tasks.base import Arrays, Encode, Example, Kind, Row, TaskInput
from compress.tasks.kinds.text_kind import check_logits, collate_text, example_of, parts_of, stacked_labels

MOST = 1000
"""Texts of the longest list: answers of all rows are as wide as that, and in training a row goes into one batch."""
LEAVE_OUT = "task.data.bad_rows: skip leaves such rows out and counts them"


class CandidateKind(Kind):
    """A kind whose rows hold a question in `text` and a list of texts in ``listed``."""

    head = "sequence-classification"
    perturbable: tuple[str, ...] = ("text",)
    columns: tuple[int, int | None] = (2, 2)
    is_variadic = True
    listed: str
    """The field of a canonical row that holds the list."""
    least: int
    """The shortest list that makes sense."""

    def marks(self, row: Row) -> Sequence[float]:
        """For each text of the list, how right it is (0: wrong)."""
        raise NotImplementedError

    def targets(self, row: Row) -> Iterable[Hashable]:
        """Right texts from wrong ones, wherever in the list they stand."""
        return self.marks(row)

    def to_input(self, row: Row) -> TaskInput:
        """The question and the texts of its list."""
        return (str(row["text"]), *map(str, row[self.listed]))

    def from_input(self, given: TaskInput, task: TaskInfo) -> Row:
        """The first text is the question, the others are its list."""
        parts = parts_of(given)
        if len(parts) <= self.least or not all(isinstance(part, str) for part in parts):
            told = f"a question and {self.least} or more {self.listed}"
            hint = "the question comes first; in a file there are tabs between them"
            raise UsageError(f"{task.name} reads {told}; got {given!r}.", hint=hint)
        return {"text": parts[0], self.listed: list(parts[1:])}

    def output_count(self, task: TaskInfo) -> int:
        """One: the score of a text."""
        return 1

    def keep_row_together(self, task: TaskInfo) -> bool:
        """A score means something beside those of the same list only."""
        return True

    def examples(self, row: Row, task: TaskInfo, encode: Encode) -> list[Example]:
        """One example a text of the list."""
        labels: Sequence[float | None] = [None] * len(row[self.listed]) if "label" not in row else self.marks(row)
        pairs = zip(row[self.listed], labels, strict=True)
        return [example_of(encode(row["text"], text, task.max_length), {"label": label}) for text, label in pairs]

    def collate(self, examples: Sequence[Example], pad_id: int) -> Arrays:
        """A padded batch; labels are float32 (n,), 0 for wrong texts."""
        return {**collate_text(examples, pad_id), **stacked_labels(examples, np.float32)}

    def decode(self, outputs: Arrays, batch: Arrays, task: TaskInfo) -> list[NDArray[Any]]:
        """The score of each example."""
        return list(check_logits(outputs, width=1))


def side_by_side(values: Sequence[NDArray[Any]], filler: float) -> NDArray[np.float64]:
    """Lists of different lengths as one array (rows, longest), with ``filler`` behind the end of the shorter ones."""
    found = np.full((len(values), max(map(len, values), default=0)), filler, dtype=np.float64)
    for line, each in zip(found, values, strict=True):
        line[: len(each)] = each
    return found


def of_rows(decided: Sequence[NDArray[Any]], counts: Sequence[int]) -> list[NDArray[Any]]:
    """The scores of each row: ``counts`` of ``decided``, one number each."""
    return np.split(np.concatenate(decided), np.cumsum(counts)[:-1])


def checked_texts(found: Sequence[Any], named: str, least: int, where: str) -> list[str]:
    """A list of texts of which none is empty, or a DataError that says which one is."""
    if len(found) < least:
        told = f"{pluralize(len(found), named)} where {least} or more are expected"
        raise DataError(f"{where}: the row has {told}.", hint=LEAVE_OUT)
    if len(found) > MOST:
        raise DataError(f"{where}: there are {len(found):,} {named}s; {MOST:,} are read at most.", hint=LEAVE_OUT)
    for number, text in enumerate(found, 1):
        if not isinstance(text, str):
            told = "nothing" if text is None else f"{type(text).__name__} {str(text)[:40]!r}"
            raise DataError(f"{where}: {named} {number} of {len(found)} is {told} where text is expected.")
        if not text.strip():
            raise DataError(f"{where}: {named} {number} of {len(found)} is empty.", hint=LEAVE_OUT)
    return list(found)
