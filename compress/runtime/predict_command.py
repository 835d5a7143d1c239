"""`compress predict`: one line per text, for texts given as arguments, in a file or on stdin."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from compress.console import Console
from compress.environment import usable_cores
from compress.errors import DataError, UsageError
from compress.runtime.predictor import Placement
from compress.runtime.text_model import TextModel, read_texts

INVALID_BYTE = re.compile("[\udc80-\udcff]")
"""What `surrogateescape` makes of a byte that is not UTF-8."""


def predict_and_show(
    folder: Path, typed: Sequence[str], console: Console, *, file: Path | None, batch: int, placement: Placement
) -> None:
    """Predict for the ``typed`` texts, or those of ``file``, or those of stdin, in the console's format."""
    if placement.threads > usable_cores():
        cores = usable_cores()
        usable = f"{cores} core{'' if cores == 1 else 's'}"
        console.warn(
            f"--threads {placement.threads}: this process may use {usable}; more threads than cores are slower."
        )
    model = TextModel.open(folder, placement)
    columns = len(model.task.text)
    given = _input_texts(typed, file, columns, is_variadic=model.kind.is_variadic)
    source, empty = None if typed else str(file or "stdin"), list[str]()
    for numbered in read_texts(given, batch, several=columns > 1, source=source, empty=empty.append):
        origins, texts = zip(*numbered, strict=True)
        for text, prediction in zip(texts, model.predict(texts, batch, origins), strict=True):
            if console.format == "json":
                console.jsonl({"text": text, **prediction})
            else:
                console.line(format_prediction(prediction))
    if empty:
        lines = "1 line holds no text and has" if len(empty) == 1 else f"{len(empty):,} lines hold no text and have"
        console.warn(f"{lines} no answer; the first: {empty[0]}.")


def format_prediction(prediction: Mapping[str, object]) -> str:
    """Return the fields of a prediction in one line; fields without a value become one `no answer`."""
    fields = [format_field(value) for value in prediction.values() if value is not None]
    return "\t".join(fields if len(fields) == len(prediction) else ["no answer", *fields])


def format_field(value: object) -> str:
    """Return one field: a name, a number, several of them, or several with their own fields (entities)."""
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {format_field(entry)}" for name, entry in value.items())
    if isinstance(value, (list, tuple)):
        separator = "; " if any(isinstance(entry, dict) for entry in value) else ", "
        return separator.join(map(format_field, value)) or "none"
    return str(value)


def _input_texts(typed: Sequence[str], file: Path | None, columns: int, *, is_variadic: bool) -> Iterable[str]:
    """Return the typed texts, or the lines of a file or of stdin; texts that are read together have tabs between them.

    Where a model reads several texts, arguments without tabs are grouped by that number, or all of them together where
    there may be any number (a question and its choices, a query and its candidates).
    """
    if typed and file:
        raise UsageError(f"give texts as arguments or with --file, not both; got {len(typed)} arguments and {file}.")
    if not typed:
        return _file_lines(file) if file else _stdin_lines()
    for number, text in enumerate(typed, start=1):
        if INVALID_BYTE.search(text):
            raise UsageError(f"text {number} is not UTF-8.")
    if columns == 1 or len(typed) == 1 or any("\t" in text for text in typed):
        return typed
    if is_variadic:
        return ["\t".join(typed)]
    if len(typed) % columns:
        raise UsageError(
            f"this model reads {columns} texts at a time; got {len(typed)}, expected a multiple of {columns}."
        )
    return ["\t".join(typed[start : start + columns]) for start in range(0, len(typed), columns)]


def _file_lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape") as stream:
            yield from _valid_lines(stream, str(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _stdin_lines() -> Iterator[str]:
    if sys.stdin is None:  # as Python sets it where the shell closed it
        raise UsageError("there is no text: stdin is closed.", hint='compress predict MODEL "a text", or --file FILE')
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    yield from _valid_lines(sys.stdin, "stdin")


def _valid_lines(lines: Iterable[str], source: str) -> Iterator[str]:
    """Yield the lines up to the first one that is not UTF-8."""
    for number, line in enumerate(lines, start=1):
        if invalid := INVALID_BYTE.search(line):
            raise DataError(
                f"{source}, line {number} cannot be read: byte 0x{ord(invalid[0]) - 0xDC00:02x} is not UTF-8"
            )
        yield line
