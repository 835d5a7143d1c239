"""Raw rows to canonical rows, by what they are for: to train on, to score, or without a label."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from compress.data.loading.row_sources import Source
from compress.errors import DataError, UsageError
from compress.recipe.field_types import Part
from compress.recipe.schema import Task
from compress.tasks import RawRow, Row, kind_of, task_info
from compress.tasks.parsing.probability_columns import parse_train_row

RowParser = Callable[[RawRow], Row]
"""Returns a raw row's canonical row, or raises a DataError that names its location."""


def row_parser(task: Task, labels: tuple[str, ...], part: Part) -> RowParser:
    """Return the parser for the rows of ``part``."""
    kind, info = kind_of(task), task_info(task, labels)

    def without_label(raw: RawRow) -> Row:
        try:
            return kind.from_input(kind.parse_input(raw.values, task, raw.where), info)
        except UsageError as fault:
            raise DataError(f"{raw.where}: {fault.message}", hint=fault.hint) from fault

    if part == "unlabelled":
        return without_label
    if part == "train":
        return lambda raw: parse_train_row(kind, raw.values, task, labels, raw.where)
    return lambda raw: kind.read_row(raw.values, task, labels, raw.where)


def valid_rows(
    source: Source, parse: RowParser, skips: bool, skip: Callable[[DataError], None] = lambda fault: None
) -> Iterator[tuple[int, RawRow, Row]]:
    """Yield the rows of a source that fit the task, with their number; others raise, or are skipped if ``skips``."""
    for number, raw in enumerate(source()):
        try:
            row = parse(raw)
        except DataError as fault:
            if not skips:
                raise
            skip(fault)
            continue
        yield number, raw, row
