"""Rows with their answers: each part is written as a file, and parts are put together as csv, jsonl, parquet or npy.

What a part holds follows from the file and the model alone, so parts may be written again, or on different machines.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from compress.bulk.read_table import Part
from compress.console import to_json
from compress.environment import require
from compress.errors import UsageError, nearest
from compress.storage.atomic_write import atomic_write

WRITTEN_FORMATS = ("parquet", "csv", "jsonl", "npy")
"""What answers are written as; npy: embeddings alone, a line a row."""
DIGITS = 7
"""Significant digits of an answer's numbers in text: models compute in float32."""
GROUP_ROWS, GROUP_BYTES = 1 << 16, 1 << 26
"""Rows of a row group of parquet, fewer where they are large."""

Answers = Sequence[Mapping[str, Any]]
Objects = Sequence[Mapping[str, Any]]


def output_format(path: str) -> str:
    """Return the format of an output by its name."""
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in WRITTEN_FORMATS:
        endings = [f".{name}" for name in WRITTEN_FORMATS]
        raise UsageError(f"{path}: answers are written to {', '.join(endings)}{nearest(f'.{ending}', endings)}")
    return ending


def part_format(target: str, read: str) -> str:
    """Return how parts are stored: objects become a csv when all of their keys are known."""
    return "jsonl" if (target, read) == ("csv", "jsonl") else target


def write_part(
    path: Path, form: str, part: Part, objects: Objects | None, names: Sequence[str], answers: Answers
) -> None:
    """Write the rows of a part with their answers in the columns ``names``, in the order of the answers' fields."""
    if form == "parquet":
        _write_parquet(path, part, objects, names, answers)
    elif form == "npy":
        _write_vectors(path, answers)
    else:
        rows = _mappings(part) if objects is None else objects
        found = ([_short(value) for value in answer.values()] for answer in answers)
        if form == "jsonl":
            added = (dict(zip(names, each, strict=True)) for each in found)
            atomic_write(path, "".join(f"{to_json({**row, **each})}\n" for row, each in zip(rows, added, strict=True)))
        else:
            atomic_write(path, _csv([*row.values(), *each] for row, each in zip(rows, found, strict=True)))


def _mappings(part: Part) -> Iterable[Mapping[str, Any]]:
    if part.table is not None:
        return part.table.to_pylist()  # type: ignore[no-any-return]
    return (dict(zip(part.columns, row, strict=True)) for row in part.rows)


def _short(value: Any) -> Any:
    """Return numbers with as many digits as the model computed."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [_short(item) for item in value]
    return {name: _short(item) for name, item in value.items()} if isinstance(value, dict) else value


def _csv(rows: Iterable[Sequence[Any]]) -> str:
    lines: list[str] = []
    # Python 3.11 quotes the characters of its line ending alone, so a carriage return has to be one of them.
    stream = SimpleNamespace(write=lambda line: lines.append(line.removesuffix("\r\n") + "\n"))
    csv.writer(stream, lineterminator="\r\n").writerows(map(_csv_cell, row) for row in rows)
    return "".join(lines)


def _csv_cell(value: Any) -> Any:
    """Return text as it is, nothing where there is none, and anything else as JSON."""
    if value is None or (isinstance(value, (str, int, float)) and not isinstance(value, bool)):
        return "" if value is None else value
    text = to_json(value)
    return json.loads(text) if text.startswith('"') else text


def _write_vectors(path: Path, answers: Answers) -> None:
    """Write an embedding a line; NaN where a row has none."""
    vectors = [answer["embedding"] for answer in answers]
    width = next((len(vector) for vector in vectors if vector is not None), 0)
    lines = np.array([[np.nan] * width if vector is None else vector for vector in vectors], np.float32)
    content = io.BytesIO()
    np.save(content, lines.reshape(len(vectors), width))
    atomic_write(path, content.getvalue())


def arrow_column(values: Sequence[Any]) -> Any:
    """Return an answer column; numbers are float32, as models compute."""
    pyarrow = require("pyarrow", "bulk")
    array = pyarrow.array(values)
    return array.cast(_float32(array.type, pyarrow))


def _float32(kind: Any, pyarrow: Any) -> Any:
    if pyarrow.types.is_float64(kind):
        return pyarrow.float32()
    if pyarrow.types.is_list(kind):
        return pyarrow.list_(_float32(kind.value_type, pyarrow))
    if pyarrow.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pyarrow.struct([(each.name, _float32(each.type, pyarrow)) for each in fields])
    return kind


def _write_parquet(path: Path, part: Part, objects: Objects | None, names: Sequence[str], answers: Answers) -> None:
    pyarrow = require("pyarrow", "bulk")
    from pyarrow import parquet

    table = part.table
    if objects is not None:
        keys = dict.fromkeys(key for row in objects for key in row)
        columns = {key: _given_column([row.get(key) for row in objects], pyarrow) for key in keys}
        table = pyarrow.table(columns) if columns else None
    elif table is None:
        texts = [pyarrow.array(each, pyarrow.string()) for each in zip(*part.rows, strict=True)]
        table = pyarrow.table(texts, names=list(part.columns))
    for name, field in zip(names, answers[0], strict=True):
        column = arrow_column([answer[field] for answer in answers])
        table = pyarrow.table({name: column}) if table is None else table.append_column(name, column)
    content = io.BytesIO()
    parquet.write_table(table, content)
    atomic_write(path, content.getvalue())


def _given_column(values: list[Any], pyarrow: Any) -> Any:
    """Return a column of what objects hold; as text where parquet has no type for it, or they hold several types."""
    try:
        column = pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError):
        return _text_column(values, pyarrow)
    return _text_column(values, pyarrow) if _has_empty_struct(column.type, pyarrow) else column


def _has_empty_struct(kind: Any, pyarrow: Any) -> bool:
    """Whether a type has an object without keys, which parquet cannot hold."""
    if pyarrow.types.is_list(kind):
        return _has_empty_struct(kind.value_type, pyarrow)
    fields = [kind.field(index).type for index in range(kind.num_fields)] if pyarrow.types.is_struct(kind) else None
    return fields == [] or any(_has_empty_struct(each, pyarrow) for each in fields or ())


def _text_column(values: Iterable[Any], pyarrow: Any) -> Any:
    """Return a column of text: JSON for what is none."""
    return pyarrow.array(list(map(_as_text, values)), pyarrow.string())


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else to_json(value)


def merge_parts(paths: Sequence[Path], target: Path, form: str, columns: Sequence[str], names: Sequence[str]) -> None:
    """Put the files of all parts together: the rows' ``columns``, and the ``names`` of the answers."""
    if form == "parquet":
        _merge_parquet(paths, target, names)
    elif form == "npy":
        _merge_vectors(paths, target)
    else:
        columns = [*columns, *names]
        with target.open("wb") as stream:
            if form == "csv":
                stream.write(_csv([columns]).encode())
            for path in paths:
                content = path.read_bytes()
                if form == "csv" and path.suffix == ".jsonl":
                    rows = map(json.loads, content.splitlines())  # of bytes: at line breaks alone
                    content = _csv([row.get(name) for name in columns] for row in rows).encode()
                stream.write(content)


def _merge_vectors(paths: Sequence[Path], target: Path) -> None:
    shapes = [np.load(path, mmap_mode="r").shape for path in paths]
    width = max((shape[1] for shape in shapes), default=0)
    header = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(np.float32)),
        "fortran_order": False,
        "shape": (sum(shape[0] for shape in shapes), width),
    }
    with target.open("wb") as stream:  # not through a mapping, in which a full disk ends the process
        np.lib.format.write_array_header_1_0(stream, header)
        for path, (count, part_width) in zip(paths, shapes, strict=True):
            lines = np.load(path) if part_width == width else np.full((count, width), np.nan)
            stream.write(np.ascontiguousarray(lines, np.float32).data)


def _merge_parquet(paths: Sequence[Path], target: Path, names: Sequence[str]) -> None:
    pyarrow = require("pyarrow", "bulk")
    from pyarrow import parquet

    schema = _common_schema(paths, names, pyarrow)
    with parquet.ParquetWriter(target, schema) as writer:
        held: list[Any] = []
        for path in paths:
            held.append(_cast(parquet.read_table(path), schema, pyarrow))
            if sum(map(len, held)) >= GROUP_ROWS or sum(table.nbytes for table in held) >= GROUP_BYTES:
                writer.write_table(pyarrow.concat_tables(held), row_group_size=GROUP_ROWS)
                held = []
        if held:
            writer.write_table(pyarrow.concat_tables(held), row_group_size=GROUP_ROWS)


def _common_schema(paths: Sequence[Path], names: Sequence[str], pyarrow: Any) -> Any:
    """Return a schema that holds the columns of all parts, answers last: as text where no other type holds a column."""
    from pyarrow import parquet

    schemas = [parquet.read_schema(path) for path in paths]
    common = _unified(schemas, names, pyarrow)
    parts = zip(paths, schemas, strict=True)
    lossy = {name for path, schema in parts for name in _lossy_columns(path, schema, common, pyarrow)}
    return pyarrow.schema([field.with_type(pyarrow.string()) if field.name in lossy else field for field in common])


def _lossy_columns(path: Path, schema: Any, common: Any, pyarrow: Any) -> list[str]:
    """Return the columns of a part that the common type cannot hold: large integers as floats."""
    from pyarrow import parquet

    changed = [field for field in common if field.name in schema.names and schema.field(field.name).type != field.type]
    if not changed:
        return []
    table = parquet.read_table(path)
    return [field.name for field in changed if _try_cast(table[field.name], field.type, pyarrow) is None]


def _try_cast(column: Any, kind: Any, pyarrow: Any) -> Any:
    """Return a column as another type; None where that cannot hold it."""
    try:
        return column.cast(kind)
    except pyarrow.ArrowException:
        return None


def _unified(schemas: Sequence[Any], names: Sequence[str], pyarrow: Any) -> Any:
    """Return the columns of all parts, each with the type that theirs have in common."""
    columns = dict.fromkeys(name for schema in schemas for name in schema.names if name not in names)
    fields = []
    for name in [*columns, *names]:
        kinds = [pyarrow.schema([schema.field(name)]) for schema in schemas if name in schema.names]
        text = pyarrow.field(name, pyarrow.string())
        try:
            field = pyarrow.unify_schemas(kinds, promote_options="permissive").field(0)
        except pyarrow.ArrowException:
            field = text
        fields.append(text if pyarrow.types.is_null(field.type) else field)
    return pyarrow.schema(fields)


def _cast(table: Any, schema: Any, pyarrow: Any) -> Any:
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pyarrow.nulls(len(table), field.type))
            continue
        column = table[field.name]
        cast = _try_cast(column, field.type, pyarrow)
        columns.append(_text_column(column.to_pylist(), pyarrow) if cast is None else cast)
    return pyarrow.table(columns, schema=schema)
