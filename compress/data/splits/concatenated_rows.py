"""What a student is trained on: rows of train, then rows without a label, which have the teachers' outputs alone."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from compress.batch_arrays import LABELLED, SOFT_LABELS
from compress.data.splits.row_store import StoredRows
from compress.model_info import TaskInfo
from compress.tasks import kind_of
from compress.tasks.base import LazyRows, Row

COPY_OF = "copy_of"
"""The field of an augmented row with the index of the row of train that it is a changed copy of."""


class Origin(NamedTuple):
    """Where a training row comes from."""

    of: Literal["train", "unlabelled", "augmented"]
    row: int
    """From 0; for an augmented row, that of the row of train it is a copy of."""


def train_origin(index: int) -> Origin:
    """Return the origin of a row where nothing is concatenated."""
    return Origin("train", index)


class ConcatenatedRows(LazyRows):
    """Rows of train before rows without a label: all have the same fields, and `labelled`."""

    def __init__(self, train: Sequence[Row], others: Sequence[Sequence[Row]], task: TaskInfo) -> None:
        """``others`` follow train in their order: unlabelled rows before augmented ones."""
        self._parts = [train, *(part for part in others if len(part))]
        self._task, self._kind = task, kind_of(task)
        soft = train[0].get(SOFT_LABELS)
        self._no_soft_labels = {} if soft is None else {SOFT_LABELS: [math.nan] * len(soft)}

    @property
    def train(self) -> Sequence[Row]:
        """The rows of train."""
        return self._parts[0]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def steps(self) -> Path | None:
        """The folder of a run's steps where all parts are results of one; None elsewhere."""
        folders = {part.steps if isinstance(part, StoredRows) else None for part in self._parts}
        return folders.pop() if len(folders) == 1 else None

    def digest(self) -> str:
        """Return a digest of all rows, which have to be results of a run's steps."""
        parts = (part.digest() for part in self._parts if isinstance(part, StoredRows))
        return hashlib.sha256(" ".join(["concatenated", *parts]).encode()).hexdigest()

    def origin(self, index: int) -> Origin:
        """Return the origin of a row."""
        train = len(self._parts[0])
        if index < train:
            return train_origin(index)
        copied = self.row(index).get(COPY_OF)
        return Origin("unlabelled", index - train) if copied is None else Origin("augmented", copied)

    def row(self, index: int) -> Row:
        """Return a row of train as it is, or a row without a label with a placeholder."""
        if index < len(self._parts[0]):
            return {LABELLED: True, **self._parts[0][index]}
        for part in self._parts:
            if index < len(part):
                row = part[index]
                placeholder = self._kind.placeholder_label(row, self._task)
                return {**placeholder, **row, **self._no_soft_labels, LABELLED: False}
            index -= len(part)
        raise IndexError(index)
