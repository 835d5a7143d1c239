"""The rows of a file in parts, as they are: every line is a row, also an empty one and one that does not fit.

A part has up to `PART_ROWS` rows, fewer in small files, so that there is work for all processes; which they are follows
from the file alone. Rows that cannot be read carry the reason.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compress.bulk.delimited_records import csv_records, fit_record, tsv_records
from compress.bulk.parquet_tables import open_parquet, regrouped, unreadable
from compress.data.loading.json_files import unique_keys
from compress.data.loading.raw_rows import recognise_delimiter
from compress.data.loading.text_decoding import invalid_byte, reading, text_lines, without_invalid
from compress.environment import require
from compress.errors import DataError, UsageError, nearest, suggestion

PART_ROWS, PART_CHARACTERS = 1024, 1 << 24
"""A part ends with this row, or with the row that brings its text to so many characters."""
PARTS, LEAST_ROWS, LEAST_CHARACTERS = 64, 256, 1 << 16
"""Small files are to have so many parts, unless parts would be smaller than this."""
READ_FORMATS = ("parquet", "csv", "tsv", "jsonl", "txt")
ENDINGS = {**{f".{name}": name for name in READ_FORMATS}, ".ndjson": "jsonl"}
LINE = "text"
"""The column of a file of plain lines."""
ENCODING = "--encoding"
HALF_CHARACTER = "\\ud"
"""How JSON begins one half of a character beyond the first 65,536."""


@dataclass
class Part:
    """Consecutive rows of a file."""

    index: int
    columns: tuple[str, ...]
    """Empty for objects, each of which has its own."""
    first: int
    """The number of the first row, from 1."""
    rows: list[Any] = field(default_factory=list)
    """Of text files: lists of fields, lines, or objects not parsed yet."""
    table: Any = None
    """Of parquet: a pyarrow table, in place of rows."""
    lines: list[int] = field(default_factory=list)
    """The line of each row; empty where there are none."""
    faults: dict[int, str] = field(default_factory=dict)
    """By its index, why a row does not fit."""
    characters: int = 0

    def __len__(self) -> int:
        return len(self.rows) if self.table is None else len(self.table)

    def where(self, index: int) -> str:
        """Return `row 17 (line 18)`."""
        number = f"row {self.first + index:,}"
        return f"{number} (line {self.lines[index]:,})" if self.lines else number


@dataclass(frozen=True)
class TableFile:
    """A file of rows."""

    path: Path
    format: str
    encoding: str = "utf-8"
    header: bool = True
    """Whether the first line of a csv or tsv names the columns; else they are 0, 1, 2 and so on."""
    name: str = ""
    """What messages call it, if not by its path."""

    @property
    def shown(self) -> str:
        """What messages call it."""
        return self.name or str(self.path)

    def parts(self) -> Iterator[Part]:
        """Yield all rows."""
        if self.format == "parquet":
            return _parquet_parts(self)
        if self.format in ("csv", "tsv"):
            return _table_parts(self)
        return _line_parts(self)

    def columns(self) -> tuple[str, ...] | None:
        """Return the columns, or those of the first objects; None where these hold none.

        A file without rows is an error.
        """
        part = next(self.parts(), None)
        if part is None:
            raise DataError(f"{self.shown} has no rows.")
        if self.format != "jsonl":
            return part.columns
        objects, _ = parsed_objects(part)
        return tuple(dict.fromkeys(name for values in objects for name in values)) or None

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse names that are none of the file's columns, or of its first objects'."""
        known = self.columns() or ()
        for name in names if known else ():
            if name not in known:
                raise UsageError(
                    f"{self.shown} has no column '{name}'; its columns are {', '.join(known[:20])}"
                    f"{suggestion(name, known)}",
                    hint="--text names the column of text",
                )

    @property
    def has_plain_size(self) -> bool:
        """Whether the size of the file is about that of its text."""
        return self.format != "parquet" and self.path.suffix != ".gz"

    def check_types(self, text: Sequence[str], target: str) -> None:
        """Refuse parquet whose columns of text hold none, or with bytes that the target's format cannot hold."""
        if self.format != "parquet":
            return
        schema = open_parquet(self.path, self.shown).schema_arrow
        texts = [column.name for column in schema if "string" in str(column.type)]
        for name in text:
            kind = str(schema.field(name).type)
            if "string" not in kind and kind != "null":
                known = f"columns of text: {', '.join(texts)}" if texts else "it has no column of text"
                raise UsageError(f"{self.shown}: column '{name}' holds {kind} where text is expected; {known}.")
        for column in schema:
            if "binary" in str(column.type) and target in ("csv", "jsonl"):
                raise UsageError(
                    f"{self.shown}: column '{column.name}' holds bytes, which parquet can hold, {target} not."
                )

    def row_count(self) -> int | None:
        """Return the number of rows where the file states it."""
        return int(open_parquet(self.path, self.shown).metadata.num_rows) if self.format == "parquet" else None


def format_of(path: str) -> str:
    """Return the format of a file by its name, without `.gz`; a UsageError for others."""
    ending = Path(path.removesuffix(".gz")).suffix.lower()
    if ending not in ENDINGS:
        guess = nearest(ending, ENDINGS) if ending else f" (known: {', '.join(ENDINGS)})"
        raise UsageError(
            f"{path}: files of rows end in {', '.join(ENDINGS)}, all but .parquet also with .gz; got {ending!r}{guess}"
        )
    return ENDINGS[ending]


def _filled(
    file: TableFile, rows: Iterable[tuple[int, Any, int, str | None]], columns: tuple[str, ...]
) -> Iterator[Part]:
    """Gather rows, each with its line, characters and fault, into parts."""
    characters_a_part = min(PART_CHARACTERS, max(LEAST_CHARACTERS, file.path.stat().st_size // PARTS))
    part = Part(0, columns, 1)
    for line, row, characters, fault in rows:
        if fault:
            part.faults[len(part.rows)] = fault
        part.rows.append(row)
        part.lines.append(line)
        part.characters += characters
        if len(part.rows) == PART_ROWS or part.characters >= characters_a_part:
            yield part
            part = Part(part.index + 1, columns, part.first + len(part.rows))
    if part.rows:
        yield part


def _line_parts(file: TableFile) -> Iterator[Part]:
    """Yield the lines of a plain file, or those of one of objects, which are parsed later."""
    is_plain = file.format == "txt"

    def rows() -> Iterator[tuple[int, Any, int, str | None]]:
        for number, line in enumerate(_lines(file, "\n"), 1):
            invalid = invalid_byte(line)
            text = (without_invalid(line) if invalid else line).rstrip("\r\n")
            yield number, [text] if is_plain else text, len(line), invalid and f"{invalid} is not {file.encoding}"

    return _filled(file, rows(), (LINE,) if is_plain else ())


def _lines(file: TableFile, newline: str) -> Iterator[str]:
    with _named(file):
        yield from text_lines(file.path, file.encoding, newline, option=ENCODING, mark_invalid=True)


@contextmanager
def _named(file: TableFile) -> Iterator[None]:
    """Call a file in messages as the user did."""
    try:
        yield
    except DataError as error:
        raise DataError(error.message.replace(str(file.path), file.shown), hint=error.hint) from error


def _table_parts(file: TableFile) -> Iterator[Part]:
    """Yield the rows of a csv or tsv; a row of too many fields keeps them all, in its last column."""
    delimiter = "\t"
    if file.format == "csv":
        delimiter = recognise_delimiter(file.path, file.encoding, file.header, quoting=True, option=ENCODING)
    lines = _lines(file, "\n" if file.format == "tsv" else "")
    records = tsv_records(lines) if file.format == "tsv" else csv_records(lines, delimiter, file.shown)
    first = next(records, None)
    if first is None:
        raise DataError(f"{file.shown} is empty.")
    _, head, fault = first
    if file.header and (fault or not head):
        raise DataError(f"{file.shown}, line 1: {fault or 'it is empty'}, where the names of columns are expected.")
    if file.header:
        columns = tuple(head)
        _check_names(file, columns)
    else:
        columns = tuple(map(str, range(len(head))))

    def rows() -> Iterator[tuple[int, list[str], int, str | None]]:
        if not file.header:
            yield fit_record(first, columns, delimiter, file.encoding)
        for record in records:
            yield fit_record(record, columns, delimiter, file.encoding)

    yield from _filled(file, rows(), columns)


def _check_names(file: TableFile, columns: Sequence[str]) -> None:
    """Refuse a file in which several columns have the same name."""
    if repeated := sorted({name for name in columns if columns.count(name) > 1}):
        raise DataError(f"{file.shown}: several columns are named {', '.join(map(repr, repeated))}.")


def parsed_objects(part: Part) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Return the objects of a part, empty ones where a line is blank or broken; and what is wrong with lines."""
    objects: list[dict[str, Any]] = []
    faults = dict(part.faults)
    for index, line in enumerate(part.rows):
        values: Any = {}
        if line.strip() and index not in faults:
            try:
                values = json.loads(line, object_pairs_hook=unique_keys)
                if HALF_CHARACTER in line.lower():
                    json.dumps(values, ensure_ascii=False).encode("utf-8")
            except UnicodeEncodeError as error:
                faults[index] = f"it holds half a character ({error.reason})"
                values = {}
            except (ValueError, RecursionError) as error:
                faults[index] = f"it is not JSON: {error}"
                values = {}
            if not isinstance(values, dict):
                faults[index] = f"it is a JSON {type(values).__name__} where an object is expected"
                values = {}
        objects.append(values)
    return objects, faults


def _parquet_parts(file: TableFile) -> Iterator[Part]:
    pyarrow = require("pyarrow", "bulk")
    opened = open_parquet(file.path, file.shown)
    columns = tuple(opened.schema_arrow.names)
    _check_names(file, columns)
    index, first = 0, 1
    with reading(file.path):
        try:
            rows = min(PART_ROWS, max(LEAST_ROWS, opened.metadata.num_rows // PARTS))
            for table in regrouped(opened.iter_batches(batch_size=rows), rows, PART_CHARACTERS):
                yield Part(index, columns, first, table=table, characters=int(table.nbytes))
                index, first = index + 1, first + len(table)
        except pyarrow.ArrowException as error:
            raise unreadable(file.shown, error) from error


def cells_of(
    part: Part, names: Sequence[str], objects: Sequence[Mapping[str, Any]] | None
) -> Iterator[tuple[Any, ...]]:
    """Yield what each row holds in the columns ``names``; ``objects`` are those of a part of objects."""
    if part.table is not None:
        return zip(*(part.table[name].to_pylist() for name in names), strict=True)
    if objects is not None:
        return (tuple(values.get(name) for name in names) for values in objects)
    places = [part.columns.index(name) for name in names]
    return (tuple(row[place] for place in places) for row in part.rows)
