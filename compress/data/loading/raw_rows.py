"""Raw rows, streamed from files: a mapping by column, with the location of each row.

Nothing is repaired and nothing skipped: a row that does not fit its header, a broken line or a truncated file is an
error that names file, row and line. Only empty lines at the end of a file are ignored. CoNLL files have a word and its
tags per line and an empty line after each sentence, which is a row.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain, islice
from pathlib import Path

from compress.data.loading.json_files import document_rows, unique_keys
from compress.data.loading.text_decoding import OF_RECIPES, reading, text_lines
from compress.environment import require
from compress.errors import DataError, pluralize
from compress.recipe.field_types import Header, Part
from compress.recipe.task_schema import Data
from compress.tasks.base import RawRow
from compress.tasks.parsing.columns import SKIP_HINT, separator_hint

WORDS, TAGS = "tokens", "tags"
"""Names of the first and the last column, besides their numbers, where no header names them."""
NEW_DOCUMENT = "-DOCSTART-"

Sentence = dict[int, list[str]]
"""The columns of each word by its line in the file."""


def sentence_rows(path: Path, encoding: str, header: Header, tagged: bool = True) -> Iterator[RawRow]:
    """Yield a row per sentence, a list per column. Columns are `tokens` (first), `tags` (last), and 0, 1, 2 and so on.

    Without ``tagged``, lines may hold a word alone.
    """
    columns = 0
    for number, sentence in enumerate(_sentences(path, encoding), 1):
        for line, fields in sentence.items():
            columns = columns or len(fields)
            _check_columns(len(fields), columns, header, f"{path}, line {line}", least=2 if tagged else 1)
        lists = list(map(list, zip(*sentence.values(), strict=True)))
        names = header if isinstance(header, tuple) else map(str, range(columns))
        ends = {} if isinstance(header, tuple) else {WORDS: lists[0], TAGS: lists[-1]}
        yield RawRow(f"{path}, row {number} (line {min(sentence)})", {**ends, **dict(zip(names, lists, strict=True))})


def _sentences(path: Path, encoding: str) -> Iterator[Sentence]:
    """Yield the words of each sentence; a document separator ends a sentence and belongs to none."""
    sentence: Sentence = {}
    for number, line in enumerate(text_lines(path, encoding, newline="\n"), 1):
        text = line.rstrip("\r\n")
        fields = text.split("\t") if "\t" in text else [field for field in text.split(" ") if field]
        if text.strip() and fields[0] != NEW_DOCUMENT:
            sentence[number] = fields
        elif sentence:
            yield sentence
            sentence = {}
    if sentence:
        yield sentence


def _check_columns(count: int, columns: int, header: Header, where: str, least: int) -> None:
    if columns < least:
        raise DataError(f"{where} has 1 column where a word and its tag are expected, with a tab or spaces between.")
    if count != columns:
        hint = "a word has lost its tag, or has white space in it"
        raise DataError(f"{where} has {pluralize(count, 'column')} where the lines before have {columns}.", hint=hint)
    if isinstance(header, tuple) and len(header) != columns:
        raise DataError(f"{where} has {columns} columns where task.data.header names {len(header)}.")


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
SHOWN_COLUMNS = 20
"""Columns that a message lists."""
MOST_FAULTS = 1000
"""A file that begins with so many rows that cannot be read is refused for the first of them."""


Line = tuple[int, list[str]]
"""The line of a row in its file, from 1, and its fields without column names."""


def file_rows(path: Path, data: Data, role: Part) -> Iterator[RawRow]:
    """Yield the rows of one file; a file without any is an error."""
    form = data.format or format_of(path)
    if form == "parquet":
        rows = _parquet_rows(path)
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
    all rows have as many decides; where there is no header, only that.
    """
    counts = {delimiter: _count_fields(path, encoding, delimiter, quoting, option) for delimiter in DELIMITERS}
    equal = [delimiter for delimiter, found in counts.items() if len(set(found)) == 1 and found[0] > 1]
    if isinstance(header, tuple):
        more = header[-1:] == (AND_MORE,)
        names = len(header) - more
        fitting = (each for each, found in counts.items() if set(found) == {names} or (more and min(found) >= names))
        return next(fitting, ",")
    if not header:
        is_one_column = set(counts[","]) == {1} and len(counts[","]) > 1
        return equal[0] if is_one_column and equal else ","
    several = [delimiter for delimiter, found in counts.items() if found[0] > 1]
    return [*equal, *several, ","][0]


def _count_fields(path: Path, encoding: str, delimiter: str, quoting: bool, option: str) -> list[int]:
    """Return the number of fields of each of the first rows that are not empty."""
    csv.field_size_limit(max(LONGEST_FIELD, csv.field_size_limit()))  # of the whole process
    with closing(text_lines(path, encoding, newline="", option=option, mark_invalid=option != OF_RECIPES)) as lines:
        reader = csv.reader(lines, delimiter=delimiter)
        if not quoting:
            reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
        try:
            return [len(fields) for fields in islice(reader, SNIFFED_ROWS) if fields] or [0]
        except csv.Error:
            return [0]


def header_of(data: Data, role: Part) -> Header:
    """Return how the files of a part are headed: True where their first line names the columns."""
    return data.header.get(role, True) if isinstance(data.header, Mapping) else data.header


def _read_header(lines: Iterator[Line], header: Header, path: Path) -> tuple[list[str], bool, Iterable[Line]]:
    """Return the columns' names, whether rows may have more fields, and the lines that are rows."""
    if isinstance(header, tuple):
        more = header[-1:] == (AND_MORE,)
        return _check_distinct(list(header[:-1] if more else header), path), more, lines
    first = next(lines, None)
    if first is None:
        raise DataError(f"{path} is empty.")
    if header:
        return _check_distinct(first[1], path), False, lines
    return [str(index) for index in range(len(first[1]))], False, chain([first], lines)


def _check_distinct(columns: list[str], path: Path) -> list[str]:
    duplicates = sorted(column for column, count in Counter(columns).items() if column and count > 1)
    if duplicates:
        raise DataError(f"{path}: several columns are named {', '.join(map(repr, duplicates[:SHOWN_COLUMNS]))}.")
    return columns


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


def _parquet_rows(path: Path) -> Iterator[RawRow]:
    pyarrow = require("pyarrow", "train")
    from pyarrow import parquet

    with reading(path):
        try:
            file = parquet.ParquetFile(path)
            _check_distinct(list(file.schema_arrow.names), path)
            batches = (batch.to_pylist() for batch in file.iter_batches(batch_size=1024))
            for number, values in enumerate(chain.from_iterable(batches), 1):
                yield RawRow(f"{path}, row {number}", values)
        except pyarrow.ArrowException as error:
            raise DataError(f"{path} cannot be read as parquet: {error}") from error
