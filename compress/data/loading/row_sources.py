"""Sources of a task's rows: files, hub splits or a builtin set; each can be read again from the start.

Raw rows become canonical rows by what they are for: to train on, to score, or without a label. The columns by which
scores are broken down are read apart from them: models depend on texts and labels alone, so another slice column redoes
no training.
"""

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import groupby, islice, starmap
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from compress.console import Console
from compress.data.loading.data_digest import ROLES, source_entries
from compress.data.loading.part_rows import DOCUMENT, Columns, columns_read, part_rows
from compress.data.loading.quickstart_dataset import builtin_rows
from compress.data.loading.raw_rows import LINE
from compress.errors import DataError, UsageError
from compress.recipe.field_types import Part, Role
from compress.recipe.task_schema import Task
from compress.tasks import Row, kind_of, task_info
from compress.tasks.base import RawRow, TaskInput
from compress.tasks.parsing.columns import (
    EMPTY_VALUE,
    SKIP_HINT,
    class_name,
    column_value,
    has_column,
    is_missing,
    label_columns,
    text_value,
)
from compress.tasks.parsing.labels import UnknownClass, parse_train_row


class Source:
    """All rows of a role, from the first one each time they are asked for."""

    def __init__(self, rows: Callable[[Columns], Iterator[RawRow]], columns: Columns = None) -> None:
        """``rows`` returns them with some columns, or with all; ``columns`` are those that the task reads."""
        self._rows, self.columns = rows, columns

    def __call__(self) -> Iterator[RawRow]:
        """Return the rows with all of their columns."""
        return self._rows(None)

    def read(self) -> Iterator[RawRow]:
        """Return the rows with the columns that the task reads."""
        return self._rows(self.columns)


SkipRow = Callable[[DataError], None]
"""Is given the error of each row that is left out."""

NO_ROW_HINT = (
    "are task.kind and the columns (task.text, task.label) right? `compress ls kinds` says what each kind reads"
)

COPIED_TOGETHER = 1024
"""Rows that are copied at once."""


def open_sources(task: Task, console: Console, named: bool | None = None) -> dict[Role, Source]:
    """Return a source for each role that is given; train always is.

    Lines that belong together are one row already. With ``named``, class numbers of a hub set are replaced by names: by
    default where the recipe names no classes.
    """
    if task.data.builtin is not None:
        builtin = task.data.builtin
        return {"train": Source(lambda columns: builtin_rows(builtin, console))}
    names = task.labels is None if named is None else named
    return {role: part_source(task, role, names) for role in ROLES if source_entries(task.data, role)}


class CopiedRows(Source):
    """A source that is read once: what the task reads is copied to a temporary file when it is first read."""

    def __init__(self, source: Source, copy: IO[bytes]) -> None:
        super().__init__(lambda columns: self._read() if self.is_complete else self._read_and_copy())
        self._source, self._copy = source, copy
        self.is_complete = False

    def _read_and_copy(self) -> Iterator[RawRow]:
        self._copy.truncate(0)
        rows = self._source.read()
        while block := list(islice(rows, COPIED_TOGETHER)):
            pickle.dump([tuple(raw) for raw in block], self._copy, pickle.HIGHEST_PROTOCOL)
            yield from block
        self.is_complete = True

    def _read(self) -> Iterator[RawRow]:
        self._copy.seek(0)
        with suppress(EOFError):
            while True:
                yield from starmap(RawRow, pickle.load(self._copy))


def part_source(task: Task, part: Part, named: bool = False) -> Source:
    """Return a source of one part of the data; lines that belong together are one row."""
    grouped = partial(kind_of(task).group_lines, task=task, labelled=part != "unlabelled")

    def rows(columns: Columns) -> Iterator[RawRow]:
        for is_text, given in groupby(part_rows(task.data, part, named, columns), lambda raw: LINE in raw.values):
            whole_or_grouped = iter if is_text else partial(_around_faults, grouped=grouped)
            yield from whole_or_grouped(given)

    return Source(rows, columns_read(task, part))


def _around_faults(rows: Iterator[RawRow], grouped: Callable[[Iterator[RawRow]], Iterator[RawRow]]) -> Iterator[RawRow]:
    """Yield rows grouped, and those that could not be read beside them: they end no group."""
    faults = deque[RawRow]()

    def readable() -> Iterator[RawRow]:
        for raw in rows:
            if raw.fault is None:
                yield raw
            else:
                faults.append(raw)

    for row in grouped(readable()):
        while faults:
            yield faults.popleft()
        yield row
    yield from faults


def corpus_documents(task: Task) -> Iterator[str]:
    """Yield the texts of the recipe's corpus, from the label column or the one of documents; none may be empty."""
    for raw in part_rows(task.data, "corpus", columns=columns_read(task, "corpus")):
        yield document_text(raw, task)


def document_text(raw: RawRow, task: Task) -> str:
    """Return the text of a document of the corpus; it may not be empty."""
    if LINE in raw.values:
        return str(raw.values[LINE])
    label = label_columns(task)[0]
    text = text_value(raw.values, label if has_column(raw.values, label, task) else DOCUMENT, task, raw.where)
    if not text.strip():
        raise DataError(f"{raw.where}: the document is empty.")
    return text


def valid_rows(
    source: Source, task: Task, labels: tuple[str, ...], part: Part, skip: SkipRow = lambda fault: None
) -> Iterator[tuple[RawRow, Row]]:
    """Yield the rows of a source that fit the task; others raise, or are given to ``skip``."""
    for raw, row in parsed_rows(source, task, labels, part):
        if isinstance(row, DataError):
            skip(row)
        else:
            yield raw, row


def parsed_rows(
    source: Source, task: Task, labels: tuple[str, ...], part: Part
) -> Iterator[tuple[RawRow, Row | DataError]]:
    """Yield every row of a source; for one that does not fit the task, the error, which `bad_rows: refuse` raises."""
    parse = _refusing_faults(row_parser(task, labels, part))
    rows = source.read()
    for number, raw in enumerate(rows):
        try:
            yield raw, parse(raw)
        except DataError as fault:
            if task.data.bad_rows != "skip":
                raise _with_count(fault, rows, parse, number) from fault
            yield raw, fault


def _refusing_faults(parse: Callable[[RawRow], Row]) -> Callable[[RawRow], Row]:
    def parse_readable(raw: RawRow) -> Row:
        if raw.fault is not None:
            raise raw.fault
        return parse(raw)

    return parse_readable


def _with_count(fault: DataError, later: Iterator[RawRow], parse: Callable[[RawRow], Row], before: int) -> DataError:
    """Return the error of the first row that does not fit, with the number of those after it that do not fit either.

    A class that train does not have is counted where all such classes are named.
    """
    if isinstance(fault, UnknownClass):
        return fault
    bad = total = 1
    try:
        for raw in later:
            total += 1
            try:
                parse(raw)
            except DataError:
                bad += 1
    except DataError:  # the rest of the file cannot be read: this row comes first
        bad = 1
    message = fault.message
    if bad > 1 and bad == before + total:
        return DataError(f"{message} None of the {bad:,} rows fits the task.", hint=NO_ROW_HINT)
    if bad > 1:
        message = f"{message} It is the first of {bad:,} rows, of {before + total:,}, that do not fit the task."
    hint = fault.hint if SKIP_HINT in (fault.hint or "") else "; ".join(filter(None, [fault.hint, SKIP_HINT]))
    return DataError(message, hint=hint)


def _line_input(raw: RawRow, task: Task) -> TaskInput:
    """Return the input that a line of text is, as `compress predict` reads it."""
    line = str(raw.values[LINE])
    return tuple(line.split("\t")) if len(task.text) > 1 and "\t" in line else line


def row_parser(task: Task, labels: tuple[str, ...], part: Part) -> Callable[[RawRow], Row]:
    """Return a function that makes a canonical row of a raw one, or raises a DataError."""
    kind, info = kind_of(task), task_info(task, labels)

    def without_label(raw: RawRow) -> Row:
        try:
            given = _line_input(raw, task) if LINE in raw.values else kind.parse_input(raw.values, task, raw.where)
            return kind.from_input(given, info)
        except UsageError as fault:
            raise DataError(f"{raw.where}: {fault.message}", hint=fault.hint) from fault

    if part == "unlabelled":
        return without_label
    if part == "train":
        return lambda raw: parse_train_row(kind, raw.values, task, labels, raw.where)
    return lambda raw: kind.read_row(raw.values, task, labels, raw.where)


LONGEST = 60
"""Characters of a value that are used: it is a name, not a text."""


def slice_values(task: Task, numbers: NDArray[np.int64], console: Console) -> dict[str, list[str]]:
    """Return by column of ``task.slices`` the value of each row of test; ``numbers`` are the rows' in their source."""
    values: dict[str, list[str]] = {column: [] for column in task.slices}
    for raw in _numbered_rows(task, numbers, console):
        for column, names in values.items():
            names.append(value_name(column_value(raw.values, column, task, raw.where), column, raw.where))
    for column, names in values.items():
        if len(names) != len(numbers):
            counts = f"{len(names)} values for {len(numbers)} rows of test"
            raise DataError(f"'{column}' has {counts}: the data changed meanwhile.")
    return values


def value_name(value: Any, column: str, where: str) -> str:
    """Return the name of a value's slice; long text is cut, and lists and mappings are refused."""
    if is_missing(value):
        return EMPTY_VALUE
    if isinstance(value, (list, tuple, dict)):
        kind = type(value).__name__
        raise DataError(f"{where}: column '{column}' holds a {kind} where task.slices expects one value.")
    name = " ".join(class_name(value).encode(errors="replace").decode().split())
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _numbered_rows(task: Task, numbers: NDArray[np.int64], console: Console) -> Iterator[RawRow]:
    sources = open_sources(task, console, named=True)
    rows, last = sources["test" if "test" in sources else "train"].read(), -1
    for number in numbers.tolist():
        yield from islice(rows, number - last - 1, number - last)
        last = number
