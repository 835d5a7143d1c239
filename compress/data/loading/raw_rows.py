"""Raw rows, streamed from files: a mapping by column, with the location of each row.

Nothing is repaired and nothing skipped: a row that does not fit its header, a broken line or a truncated file is an
error that names file, row and line. Only empty lines at the end of a file are ignored.
"""

import csv
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain, islice, pairwise
from pathlib import Path

from compress.data.loading.conll_files import sentence_rows
from compress.data.loading.json_files import document_rows, unique_keys
from compress.data.loading.parquet_files import parquet_rows
from compress.data.loading.text_decoding import OF_RECIPES, text_lines
from compress.errors import DataError
from compress.recipe.field_types import Header, Part
from compress.recipe.task_schema import Data
from compress.tasks.base import RawRow
from compress.tasks.parsing.columns import SHOWN_COLUMNS, SKIP_HINT, check_distinct, separator_hint

FORMATS = ("csv", "tsv", "jsonl", "json", "parquet", "conll", "txt")
EXTENSIONS = {**{form: form for form in FORMATS}, "ndjson": "jsonl", "bio": "conll", "iob": "conll"}
"""Formats by a file's extension."""

AND_MORE = "..."
"""Ends a list of columns if rows may have more than those."""

LINE = "\n"
"""The only column of a row that is a line of plain text, with tabs between the texts that are read together."""

DELIMITERS = (",", ";", "\t", "|")
"""What may separate the columns of a csv: tools that follow a country's settings write semicolons, others tabs."""
SNIFFED_ROWS = 20
"""Rows from which the delimiter of a csv is recognised."""

LONGEST_FIELD = 1 << 24
"""Characters of a field in a file with quotes: an open one would otherwise read the rest of the file as one text."""
DELIMITER_HINT = (
    "a text that contains the delimiter needs quotes, and task.data.quoting: true; for a file without a header, set"
    " task.data.header"
)
MOST_FAULTS = 1000
"""A file that begins with so many rows that cannot be read is refused for the first of them."""


Line = tuple[int, list[str]]
"""The line of a row in its file, from 1, and its fields without column names."""


def file_rows(path: Path, data: Data, role: Part, columns: Collection[str] | None = None) -> Iterator[RawRow]:
    """Yield the rows of one file; a file without any is an error. Of parquet only ``columns`` are read, where given."""
    form = data.format or format_of(path)
    if form == "parquet":
        rows = parquet_rows(path, columns)
    elif form == "jsonl":
        rows = _json_rows(path, data)
    elif form == "json":
        rows = document_rows(path, data.encoding, role)
    elif form == "conll":
        rows = sentence_rows(path, data.encoding, header_of(data, role), tagged=role != "unlabelled")
    elif form == "txt":
        rows = _lines(path, data.encoding)
    else:
        rows = _table_rows(path, data, role, form)
    faulty = list[RawRow]()
    for row in islice(rows, MOST_FAULTS):
        if row.fault is None:
            yield from chain(faulty, [row], rows)
            return
        faulty.append(row)
    raise next((row.fault for row in faulty if row.fault), DataError(f"{path} has no rows."))


def format_of(path: Path) -> str:
    """Return the format by a file's name, without `.gz`."""
    if path.name.endswith(".parquet.gz"):
        raise DataError(f"{path}: parquet is compressed by itself.", hint="unpack it")
    name = path.with_suffix("") if path.suffix == ".gz" else path
    extension = name.suffix.removeprefix(".")
    if extension not in EXTENSIONS:
        known = ", ".join(f".{known}" for known in EXTENSIONS)
        hint = f"set task.data.format: {', '.join(FORMATS)}"
        raise DataError(
            f"{path}: unknown file name extension (known: {known}, all but parquet also with .gz).", hint=hint
        )
    return EXTENSIONS[extension]


def _table_rows(path: Path, data: Data, role: Part, form: str) -> Iterator[RawRow]:
    quoting = data.quoting if data.quoting is not None else form == "csv"
    header = header_of(data, role)
    delimiter = recognise_delimiter(path, data.encoding, header, data.quoting is not False) if form == "csv" else "\t"
    lines = _without_trailing(_quoted(path, data, delimiter) if quoting else _plain(path, data, delimiter), path)
    columns, more, rows = _read_header(lines, header, path)
    file, count = str(path), len(columns)
    may_repeat = count > 1 and columns[0] != "0"
    for number, (line, fields) in enumerate(rows, 1):
        where = f"{file}, row {number} (line {line})"
        if len(fields) != count and not (more and len(fields) > count):
            listing = ", ".join(columns[:SHOWN_COLUMNS]) + (" …" if len(columns) > SHOWN_COLUMNS else "")
            hint = separator_hint(columns) or (f"{DELIMITER_HINT}; {SKIP_HINT}" if len(fields) > count else SKIP_HINT)
            fault = DataError(f"{where} has {len(fields)} fields where {count} are expected ({listing}).", hint=hint)
            if data.bad_rows != "skip":
                raise fault
            yield RawRow(where, {}, fault)
            continue
        if may_repeat and fields[0] == columns[0] and fields[:count] == columns:
            raise DataError(f"{where} repeats the header.", hint="remove the line; files may have been concatenated")
        yield RawRow(where, dict(zip(columns, fields, strict=False)))


def _lines(path: Path, encoding: str) -> Iterator[RawRow]:
    """Yield each line that is not blank, as `compress predict --file` reads them."""
    for number, line in enumerate(text_lines(path, encoding, newline="\n"), 1):
        if line.strip():
            yield RawRow(f"{path}, line {number}", {LINE: line.rstrip("\r\n")})


def recognise_delimiter(path: Path, encoding: str, header: Header, quoting: bool, option: str = OF_RECIPES) -> str:
    """Return what separates the columns of a csv: a comma, unless the first rows have several columns with another.

    Where a first row that is a header has several columns with two of them (`text;label, final`), the one with which
    all rows have as many decides; where there is no header, only that, and what a delimiter in a text looks like.
    """
    rows = {delimiter: _first_rows(path, encoding, delimiter, quoting, option) for delimiter in DELIMITERS}
    counts = {delimiter: [len(fields) for fields in found] for delimiter, found in rows.items()}
    equal = [delimiter for delimiter, found in counts.items() if len(set(found)) == 1 and found[0] > 1]
    if isinstance(header, tuple):
        more = header[-1:] == (AND_MORE,)
        names = len(header) - more
        equal = [each for each, found in counts.items() if set(found) == {names} or (more and min(found) >= names)]
        equal = equal if names > 1 else equal[:1]  # where there is one column, nothing separates it from others
    elif not header and (len(set(counts[","])) > 1 or len(counts[","]) == 1):
        return ","
    likely = [each for each in equal if not all(_is_within_text(fields, each) for fields in rows[each])] or equal
    if header is True:
        several = [delimiter for delimiter, found in counts.items() if found[0] > 1]
        return [*likely, *several, ","][0]
    if len(likely) > 1:
        named = " and ".join(map(repr, likely))
        hint = "begin the file with a line of column names, or separate its columns with tabs and call it .tsv"
        raise DataError(f"{path}: its columns may be separated by {named}: both fit the first rows.", hint=hint)
    return [*likely, ","][0]


def _is_within_text(fields: list[str], delimiter: str) -> bool:
    """Return whether each cut may be one through a text: before a space, or at a comma between digits (`4,5`)."""
    return all(
        after[:1].isspace() or (delimiter == "," and before[-1:].isdecimal() and after[:1].isdecimal())
        for before, after in pairwise(fields)
    )


def _first_rows(path: Path, encoding: str, delimiter: str, quoting: bool, option: str) -> list[list[str]]:
    """Return the fields of each of the first rows that are not empty."""
    csv.field_size_limit(max(LONGEST_FIELD, csv.field_size_limit()))  # of the whole process
    with closing(text_lines(path, encoding, newline="", option=option, mark_invalid=option != OF_RECIPES)) as lines:
        reader = csv.reader(lines, delimiter=delimiter)
        if not quoting:
            reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
        try:
            return [fields for fields in islice(reader, SNIFFED_ROWS) if fields] or [[]]
        except csv.Error:
            return [[]]


def header_of(data: Data, role: Part) -> Header:
    """Return how the files of a part are headed: True where their first line names the columns."""
    return data.header.get(role, True) if isinstance(data.header, Mapping) else data.header


def _read_header(lines: Iterator[Line], header: Header, path: Path) -> tuple[list[str], bool, Iterable[Line]]:
    """Return the columns' names, whether rows may have more fields, and the lines that are rows."""
    if isinstance(header, tuple):
        more = header[-1:] == (AND_MORE,)
        return check_distinct(list(header[:-1] if more else header), str(path)), more, lines
    first = next(lines, None)
    if first is None:
        raise DataError(f"{path} is empty.")
    if header:
        return check_distinct(first[1], str(path)), False, lines
    return [str(index) for index in range(len(first[1]))], False, chain([first], lines)


def _plain(path: Path, data: Data, delimiter: str) -> Iterator[Line]:
    for number, line in enumerate(text_lines(path, data.encoding, newline="\n"), 1):
        text = line.removesuffix("\n").removesuffix("\r")
        yield number, text.split(delimiter) if text else []


def _quoted(path: Path, data: Data, delimiter: str) -> Iterator[Line]:
    csv.field_size_limit(max(LONGEST_FIELD, csv.field_size_limit()))  # of the whole process
    reader = csv.reader(text_lines(path, data.encoding, newline=""), delimiter=delimiter, strict=True)
    start = 1
    try:
        for fields in reader:
            yield start, fields
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{path}, line {start}: the quotes do not close or do not enclose a complete field, or a field is"
            f" longer than {LONGEST_FIELD:,} characters ({error}).",
            hint="task.data.quoting: false reads quotes as ordinary characters; jsonl and parquet hold longer fields",
        ) from error


def _without_trailing(lines: Iterator[Line], path: Path) -> Iterator[Line]:
    """Drop empty lines at the end; one in the middle is an error."""
    empty = 0
    for line, fields in lines:
        if fields and empty:
            raise DataError(f"{path}, line {empty} is empty but not at the end of the file.")
        if fields:
            yield line, fields
        else:
            empty = empty or line


def _json_rows(path: Path, data: Data) -> Iterator[RawRow]:
    texts = text_lines(path, data.encoding, newline="\n")
    lines = ((number, [text] if text.strip() else []) for number, text in enumerate(texts, 1))
    for row, (line, [text]) in enumerate(_without_trailing(lines, path), 1):
        where = f"{path}, row {row} (line {line})"
        try:
            values = json.loads(text, object_pairs_hook=unique_keys)
        except (ValueError, RecursionError) as error:
            hint = "a jsonl file holds one JSON object per line"
            raise DataError(f"{where} is not JSON: {error}.", hint=hint) from error
        if not isinstance(values, dict):
            raise DataError(f"{where} is a JSON {type(values).__name__} where an object is expected, one per line.")
        yield RawRow(where, values)
