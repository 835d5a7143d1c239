"""What a student learns from: rows of train, then rows without an answer, which only its teachers can tell it of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from compress.model_info import TaskInfo
from compress.tasks import kind_of
from compress.tasks.base import Row
from compress.tasks.parsing.lazy_rows import LazyRows

COPY_OF = "copy_of"
"""The field of an augmented row that tells which row of train, from 0, it is a changed copy of."""


class Origin(NamedTuple):
    """Where a row that is learnt from stands, as people can find it."""

    of: Literal["train", "unlabelled", "augmented"]
    row: int
    """From 0; of an augmented row that of train which it is a copy of."""


def train_origin(place: int) -> Origin:
    """Where nothing is joined."""
    return Origin("train", place)


class ConcatenatedRows(LazyRows):
    """Rows of train before rows without an answer: all have the same fields, and tell whether they are `labelled`."""

    def __init__(self, train: Sequence[Row], others: Sequence[Sequence[Row]], task: TaskInfo) -> None:
        """``others``, unlabelled rows before augmented ones, have no answers; they follow train in their order."""
        self._parts = [train, *(part for part in others if len(part))]
        self._task, self._kind = task, kind_of(task)
        soft = train[0].get("soft_labels")
        self._told = {} if soft is None else {"soft_labels": [math.nan] * len(soft)}

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def origin(self, place: int) -> Origin:
        """Of the row at a place."""
        train = len(self._parts[0])
        if place < train:
            return train_origin(place)
        copied = self.row(place).get(COPY_OF)
        return Origin("unlabelled", place - train) if copied is None else Origin("augmented", copied)

    def row(self, place: int) -> Row:
        """A row as it is, or one of those without an answer with something that fills its place in a batch."""
        if place < len(self._parts[0]):
            return {"labelled": True, **self._parts[0][place]}
        for part in self._parts:
            if place < len(part):
                row = part[place]
                return {**self._kind.placeholder_label(row, self._task), **row, **self._told, "labelled": False}
            place -= len(part)
        raise IndexError(place)
