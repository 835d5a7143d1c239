"""The records of delimited lines: csv, whose quotes may span lines, and tsv; each with what is wrong with it."""

import csv
from collections.abc import Iterable, Iterator, Sequence

from compress.data.loading.raw_rows import LONGEST_FIELD
from compress.data.loading.text_decoding import invalid_byte, without_invalid
from compress.errors import DataError

Record = tuple[int, list[str], str | None]
"""A line's number, its fields, and why it cannot be read."""


def tsv_records(lines: Iterable[str]) -> Iterator[Record]:
    """Yield a record for each line, without quoting."""
    for number, line in enumerate(lines, 1):
        text = line.removesuffix("\n").removesuffix("\r")
        yield number, text.split("\t") if text else [], None


def csv_records(lines: Iterable[str], delimiter: str, shown: str) -> Iterator[Record]:
    """Yield the records of a csv, which messages call ``shown``; quoted fields may span lines."""
    csv.field_size_limit(max(LONGEST_FIELD, csv.field_size_limit()))  # of the whole process
    read = list[str]()
    reader = csv.reader(_noted(lines, read), delimiter=delimiter)
    start = 1
    try:
        for fields in reader:
            yield start, fields, _quoting_fault(read, delimiter)
            read.clear()
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{shown}, line {start:,}: the quotes do not close, or a field is longer than {LONGEST_FIELD:,}"
            f" characters ({error}).",
            hint="parquet and jsonl hold longer fields",
        ) from error


def _noted(lines: Iterable[str], read: list[str]) -> Iterator[str]:
    """Yield lines, each of which is added to ``read``."""
    for line in lines:
        read.append(line)
        yield line


def _quoting_fault(lines: Sequence[str], delimiter: str) -> str | None:
    """Return what is wrong with the quotes of a record; those of one line that close are read as they can be.

    A quote that never closes takes all rows that follow into its field.
    """
    if len(lines) == 1 and lines[0].count('"') % 2 == 0:
        return None
    try:
        list(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error:
        more = f", so that it takes up {len(lines):,} lines" if len(lines) > 1 else ""
        return f"its quotes do not close, or do not enclose a field{more}"
    return None


def fit_record(
    record: Record, columns: tuple[str, ...], delimiter: str, encoding: str
) -> tuple[int, list[str], int, str | None]:
    """Return a record's line, a field for each column, its characters, and what is wrong with it."""
    line, fields, fault = record
    characters = sum(map(len, fields)) + len(fields)
    count = len(columns)
    if not fields:  # an empty line
        return line, [""] * count, characters, None
    for index, text in enumerate(fields):
        if invalid := invalid_byte(text):
            fields[index] = without_invalid(text)
            fault = f"{invalid} of column '{columns[min(index, count - 1)]}' is not {encoding}"
    if len(fields) != count:
        fault = fault or f"it has {len(fields)} fields where {count} are expected ({', '.join(columns[:20])})"
        fields = [*fields[: count - 1], delimiter.join(fields[count - 1 :])]
        fields += [""] * (count - len(fields))
    return line, fields, characters, fault
