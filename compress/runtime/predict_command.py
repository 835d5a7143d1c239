"""`compress predict`: answers, a line each, to texts that were typed in, or those of a file or of stdin."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from compress.console import Console
from compress.errors import DataError, UsageError
from compress.runtime.predictor import Placement
from compress.runtime.text_model import TextModel, read_texts


def predict_and_show(
    folder: Path, typed: Sequence[str], console: Console, *, file: Path | None, batch: int, placement: Placement
) -> None:
    """Answer the texts that were ``typed``, else those of ``file``, else those of stdin, in the console's format."""
    model = TextModel.open(folder, placement)
    parts = len(model.task.text)
    given = _given_texts(typed, file, parts, is_variadic=model.kind.is_variadic)
    source, empty = None if typed else str(file or "stdin"), list[str]()
    for together in read_texts(given, batch, several=parts > 1, source=source, empty=empty.append):
        places, texts = zip(*together, strict=True)
        for text, answer in zip(texts, model.predict(texts, batch, places), strict=True):
            if console.format == "json":
                console.jsonl({"text": text, **answer})
            else:
                console.line(told(answer))
    if empty:
        lines = "1 line holds no text and has" if len(empty) == 1 else f"{len(empty):,} lines hold no text and have"
        console.warn(f"{lines} no answer; the first: {empty[0]}.")


def told(answer: Mapping[str, object]) -> str:
    """An answer's fields in one line; those that hold nothing are no answer, and said once."""
    fields = [shown(value) for value in answer.values() if value is not None]
    return "\t".join(fields if len(fields) == len(answer) else ["no answer", *fields])


def shown(value: object) -> str:
    """One field of an answer: a name, a number, several of them, or several with their own fields (entities)."""
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(entry)}" for name, entry in value.items())
    if isinstance(value, (list, tuple)):
        between = "; " if any(isinstance(each, dict) for each in value) else ", "
        return between.join(map(shown, value)) or "none"
    return str(value)


def _given_texts(typed: Sequence[str], file: Path | None, parts: int, *, is_variadic: bool) -> Iterable[str]:
    """Texts as typed, else the lines of a file or of stdin; what is read together has tabs between.

    Where a model reads several, words without tabs are taken so many at a time, or all of them together where there
    may be any number (a question and its choices, a query and its candidates).
    """
    if typed and file:
        raise UsageError(f"texts are typed or read from --file, not both; got {len(typed)} typed and {file}.")
    if not typed:
        return _lines(file) if file else _stdin_lines()
    for number, text in enumerate(typed, start=1):
        if not text.isprintable() and any("\udc80" <= letter <= "\udcff" for letter in text):
            raise UsageError(f"text {number} is not UTF-8.")
    if parts == 1 or len(typed) == 1 or any("\t" in text for text in typed):
        return typed
    if is_variadic:
        return ["\t".join(typed)]
    if len(typed) % parts:
        raise UsageError(f"this model reads {parts} texts at a time; got {len(typed)}, expected a multiple of {parts}.")
    return ["\t".join(typed[start : start + parts]) for start in range(0, len(typed), parts)]


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig") as stream:
            yield from stream
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} cannot be read: byte 0x{error.object[error.start]:02x} is not UTF-8") from error


def _stdin_lines() -> Iterator[str]:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    try:
        yield from sys.stdin
    except UnicodeDecodeError as error:
        raise DataError(f"stdin cannot be read: byte 0x{error.object[error.start]:02x} is not UTF-8") from error
