"""`compress predict`: one line per text, for texts given as arguments, in a file or on stdin."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from io import BufferedReader
from itertools import chain, count, islice
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, cast

from compress.console import Console
from compress.data.loading.text_decoding import text_lines
from compress.environment import usable_cores
from compress.errors import DataError, UsageError, pluralize
from compress.runtime.predictor import Placement
from compress.runtime.text_model import TextModel, answer_fields

NamedText = tuple[str, str]
"""The origin of a text (`text 2`, `texts.tsv, line 4`) and the text."""
PIECE = 1 << 16
"""Bytes that a pipe is read by at most."""


def predict_and_show(
    folder: Path,
    typed: Sequence[str],
    console: Console,
    *,
    file: Path | None,
    batch: int | None = None,
    placement: Placement,
    every_class: bool = False,
    encoding: str = "utf-8",
    name: str = "",
) -> None:
    """Predict for the ``typed`` texts, or those of ``file``, or those of stdin, in the console's format.

    Each line in gives one line out, also a line without text; of a pipe as soon as it has come, unless answers depend
    on their batch. ``batch``: texts that run together; None: as `TextModel.predict` does. ``every_class``: with the
    probabilities of all classes. ``name``: the file's, if it is a copy of one that is elsewhere.
    """
    if placement.threads > usable_cores():
        usable = pluralize(usable_cores(), "core")
        console.warn(f"--threads {placement.threads}: this process may use {usable}; more threads are slower.")
    model = TextModel.open(folder, placement)
    batch = batch or model.batch
    every_class = model.adds_classes(answer_fields(model.task, len(model.task.text), every_class))
    given = [_typed_texts(typed, model)] if typed else _groups(file, encoding, name)
    several = len(model.task.text) > 1
    for chunk in _chunks(given, batch, always_full=model.depends_on_batch):
        origins, lines = zip(*chunk, strict=True)
        texts = [tuple(line.split("\t")) if several and "\t" in line else line for line in lines]
        for text, prediction in zip(texts, model.predict(texts, batch, origins, every_class=every_class), strict=True):
            if console.format == "json":
                console.jsonl({"text": text, **prediction})
            else:
                console.line(format_prediction(prediction))


def _chunks(groups: Iterable[Iterable[NamedText]], batch: int, *, always_full: bool) -> Iterator[list[NamedText]]:
    """Yield up to ``batch`` texts of a group; full batches of all, where answers depend on them."""
    for group in [chain.from_iterable(groups)] if always_full else groups:
        texts = iter(group)
        while chunk := list(islice(texts, batch)):
            yield chunk


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


def _typed_texts(typed: Sequence[str], model: TextModel) -> Iterator[NamedText]:
    """Yield the arguments; texts that are read together have tabs between them.

    Where a model reads several texts, arguments without tabs are grouped by that number, or all of them together where
    there may be any number (a question and its choices, a query and its candidates).
    """
    for number, text in enumerate(typed, start=1):
        if any("\udc80" <= character <= "\udcff" for character in text):  # bytes that Python could not decode
            raise UsageError(f"text {number} is not UTF-8.")
    columns = len(model.task.text)
    if columns == 1 or len(typed) == 1 or any("\t" in text for text in typed):
        size = 1
    elif model.kind.is_variadic:
        size = len(typed)
    else:
        size = columns
    if len(typed) % size:
        raise UsageError(f"this model reads {size} texts at a time; got {len(typed)}, expected a multiple of {size}.")
    groups = ("\t".join(typed[start : start + size]) for start in range(0, len(typed), size))
    return ((f"text {number}", text) for number, text in enumerate(groups, start=1))


def read_lines(file: Path | None, encoding: str = "utf-8", name: str = "") -> Iterator[NamedText]:
    """Yield the lines of a file or of stdin as they arrive, those without text too.

    ``encoding`` is a file's, ``name`` what messages call it.
    """
    return chain.from_iterable(_groups(file, encoding, name))


def _groups(file: Path | None, encoding: str, name: str) -> Iterator[Iterable[NamedText]]:
    """Yield the lines of a file as one group; those of a pipe in groups that have come together."""
    shown = name or str(file or "stdin")
    if file is not None and (file.suffix == ".gz" or encoding.lower() not in ("utf-8", "utf8")):
        yield _other_lines(file, encoding, shown)
        return
    if file is None and sys.stdin is None:  # as Python sets it where the shell closed it
        raise UsageError("there is no text: stdin is closed.", hint='compress predict MODEL "a text", or --file FILE')
    numbers = count(1)
    with _reading(shown), file.open("rb") if file else nullcontext(sys.stdin.buffer) as stream:
        for lines in _arriving(cast(BufferedReader, stream)) if _comes_over_time(stream) else [stream]:
            yield _utf8_lines(zip(lines, numbers), shown)  # noqa: B905  numbers have no end


def _comes_over_time(stream: BinaryIO) -> bool:
    """Whether lines come over time: of a pipe or a terminal, not of a file."""
    try:
        return not S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:  # it is in memory
        return False


def _arriving(stream: BufferedReader) -> Iterator[list[bytes]]:
    """Yield the lines that have come by now; waits where there is none."""
    begun: list[bytes] = []
    while piece := stream.read1(PIECE):
        begun.append(piece)
        if b"\n" in piece:
            *lines, rest = b"".join(begun).split(b"\n")
            yield lines
            begun = [rest]
    if rest := b"".join(begun):
        yield [rest]


@contextmanager
def _reading(shown: str) -> Iterator[None]:
    """Name what cannot be read."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{shown} cannot be read: {error.strerror}") from error


def _utf8_lines(lines: Iterable[tuple[bytes, int]], shown: str) -> Iterator[NamedText]:
    """Yield lines with their numbers as texts with their origins."""
    with _reading(shown):
        for line, number in lines:
            origin = f"{shown}, line {number}"
            try:
                text = line.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                byte = error.object[error.start]
                raise DataError(f"{origin} cannot be read: byte 0x{byte:02x} is not UTF-8") from error
            yield origin, text.rstrip("\r\n")


def _other_lines(file: Path, encoding: str, shown: str) -> Iterator[NamedText]:
    """Yield the lines of a file that is packed, or in another encoding."""
    try:
        for number, text in enumerate(text_lines(file, encoding, newline="\n", option="--encoding"), start=1):
            yield f"{shown}, line {number}", text.rstrip("\r\n")
    except DataError as error:
        raise DataError(error.message.replace(str(file), shown), hint=error.hint) from error
