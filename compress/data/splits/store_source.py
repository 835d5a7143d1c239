"""Stores the rows of a source, and finds which of them belong together: of a document, a patient, or about one text."""

from array import array
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from compress.batch_arrays import LABELLED
from compress.data.loading.file_columns import check_true_labels
from compress.data.loading.row_sources import Source, parsed_rows, row_parser
from compress.data.splits.row_statistics import Indices, RowStatistics
from compress.data.splits.row_store import RowWriter, text_digest
from compress.errors import DataError
from compress.recipe.field_types import Part
from compress.recipe.task_schema import Task
from compress.tasks import Row, kind_of
from compress.tasks.base import RawRow
from compress.tasks.parsing.columns import column_value, has_column, is_missing


class SourceRows(NamedTuple):
    """What was stored of a source."""

    numbers: Indices
    """Of the stored rows in their source, from 0."""
    total: int
    """Rows of the source, with those that do not fit the task."""
    groups: Indices | None = None
    """Of each row of the source, the first one of its group; None where rows have none."""


def store_source(source: Source, part: Part, task: Task, store: RowWriter, statistics: RowStatistics) -> SourceRows:
    """Store and count the rows that fit the task; under `labelled` also texts of train whose label does not fit."""
    numbers, total, grouped = array("q"), 0, row_groups(task, part)
    keeps_texts = part == "train" and task.data.labelled is not None
    without_label = row_parser(task, statistics.labels, "unlabelled")
    for number, (raw, row) in enumerate(parsed_rows(source, task, statistics.labels, part)):
        total = number + 1
        if grouped:
            grouped.add(raw, row)
        if isinstance(row, DataError):
            statistics.skip(part, row)
            with suppress(DataError):
                if keeps_texts:
                    statistics.add_input(store.add(without_label(raw)))
                    numbers.append(number)
            continue
        if row.get(LABELLED) is False:
            check_true_labels(task, raw.where)
        store.add(row)
        if part == "unlabelled":
            statistics.add_input(row)
        else:
            statistics.add(row)
        numbers.append(number)
    return SourceRows(np.frombuffer(numbers, np.int64), total, grouped.numbers() if grouped else None)


class RowGroups:
    """The groups of a source's rows: by a column, or by the field that rows of the kind share."""

    def __init__(self, task: Task) -> None:
        self._task, self._column, self._field = task, task.data.group, kind_of(task).grouped_by
        self._known: dict[bytes, int] = {}
        self._without: RawRow | None = None
        self.firsts = array("q")
        """Of each row, the number of the first one of its group."""

    def add(self, raw: RawRow, row: Row | DataError) -> None:
        """Add the next row; one without a group, or whose group cannot be read, is alone."""
        number, key = len(self.firsts), None
        if self._column is not None:
            key = self._value(raw, self._column)
        elif self._field is not None and not isinstance(row, DataError):
            key = row[self._field]
        self.firsts.append(number if key is None else self._known.setdefault(text_digest(key), number))

    def _value(self, raw: RawRow, column: str) -> str | None:
        if raw.fault is not None or not has_column(raw.values, column, self._task):
            self._without = self._without or raw
            return None
        value = column_value(raw.values, column, self._task, raw.where)
        return None if is_missing(value) else str(value)

    def numbers(self) -> NDArray[np.int64]:
        """Return the first row of each row's group; raise MissingColumn where no row has the column."""
        if self._column is not None and self._without is not None and not self._known:
            column_value(self._without.values, self._column, self._task, self._without.where)
        return np.frombuffer(self.firsts, np.int64)


def row_groups(task: Task, part: Part) -> RowGroups | None:
    """Return what groups the rows of a part; None where each row is alone, and where nothing is split off the part."""
    has_groups = task.data.group is not None or kind_of(task).grouped_by is not None
    return RowGroups(task) if part == "train" and has_groups else None
