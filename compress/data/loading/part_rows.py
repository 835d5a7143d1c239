"""Raw rows of one part of the data, from files or a hub set, with the columns that the task reads."""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from compress.data.loading.data_digest import part_files, source_entries
from compress.data.loading.hub_datasets import hub_rows
from compress.data.loading.raw_rows import LINE, file_rows
from compress.recipe.field_types import Part
from compress.recipe.task_schema import Data, Task
from compress.tasks import kind_of
from compress.tasks.base import RawRow
from compress.tasks.parsing.columns import ReadValues, named_columns

Columns = Collection[str] | None
"""The columns that are read of rows; None for all."""
DOCUMENT = "text"
"""The column of a corpus where it has none of the label's name."""


def columns_read(task: Task, part: Part) -> frozenset[str]:
    """Return the columns that are read of a part: those that the task or its kind names, a line, and a document."""
    document = (DOCUMENT,) if part == "corpus" else ()
    return frozenset({LINE, *document, *kind_of(task).unnamed_columns, *named_columns(task)})


def part_rows(data: Data, part: Part, named: bool = False, columns: Columns = None) -> Iterator[RawRow]:
    """Return the raw rows of one part, line by line, with the values of ``columns``, or of all."""
    if data.hub is not None:
        rows = chain.from_iterable(hub_rows(data, split, named, columns) for split in source_entries(data, part))
    else:
        rows = chain.from_iterable(file_rows(path, data, part, columns) for path in part_files(data, part))
    return rows if columns is None else _without_other_columns(rows, columns)


def _without_other_columns(rows: Iterable[RawRow], columns: Collection[str]) -> Iterator[RawRow]:
    """Yield rows with the values of ``columns`` alone."""
    every: tuple[str, ...] = ()
    for raw in rows:
        if all(name in columns for name in raw.values):
            yield raw
            continue
        if every != tuple(raw.values):  # one tuple for all rows of the same columns, so that a copy holds it once
            every = tuple(raw.values)
        values = {name: value for name, value in raw.values.items() if name in columns}
        yield raw._replace(values=ReadValues(values, every))
