"""`compress predict`: one line per text, for texts given as arguments, in a file or on stdin."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

from compress.console import Console
from compress.data.loading.text_decoding import text_lines
from compress.environment import usable_cores
from compress.errors import DataError, UsageError, pluralize
from compress.runtime.predictor import Placement
from compress.runtime.text_model import TextModel, answer_fields

NamedText = tuple[str, str]
"""The origin of a text (`text 2`, `texts.tsv, line 4`) and the text."""


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

    Each line in gives one line out, also a line without text. ``batch``: texts that run together; None: as
    `TextModel.predict` does. ``every_class``: with the probabilities of all classes. ``name``: the file's, if it is a
    copy of one that is elsewhere.
    """
    if placement.threads > usable_cores():
        usable = pluralize(usable_cores(), "core")
        console.warn(f"--threads {placement.threads}: this process may use {usable}; more threads are slower.")
    model = TextModel.open(folder, placement)
    batch = batch or model.batch
    every_class = model.adds_classes(answer_fields(model.task, len(model.task.text), every_class))
    given = _typed_texts(typed, model) if typed else read_lines(file, encoding, name)
    several = len(model.task.text) > 1
    while chunk := list(islice(given, batch)):
        origins, lines = zip(*chunk, strict=True)
        texts = [tuple(line.split("\t")) if several and "\t" in line else line for line in lines]
        for text, prediction in zip(texts, model.predict(texts, batch, origins, every_class=every_class), strict=True):
            if console.format == "json":
                console.jsonl({"text": text, **prediction})
            else:
                console.line(format_prediction(prediction))


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
    shown = name or str(file or "stdin")
    if file is not None and (file.suffix == ".gz" or encoding.lower() not in ("utf-8", "utf8")):
        try:
            for number, text in enumerate(text_lines(file, encoding, newline="\n", option="--encoding"), start=1):
                yield f"{shown}, line {number}", text.rstrip("\r\n")
        except DataError as error:
            raise DataError(error.message.replace(str(file), shown), hint=error.hint) from error
        return
    if file is None and sys.stdin is None:  # as Python sets it where the shell closed it
        raise UsageError("there is no text: stdin is closed.", hint='compress predict MODEL "a text", or --file FILE')
    try:
        with file.open("rb") if file else nullcontext(sys.stdin.buffer) as stream:
            for number, line in enumerate(stream, start=1):
                origin = f"{shown}, line {number}"
                yield origin, line.decode("utf-8-sig").rstrip("\r\n")
    except OSError as error:
        raise DataError(f"{shown} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(f"{origin} cannot be read: byte 0x{byte:02x} is not UTF-8") from error
