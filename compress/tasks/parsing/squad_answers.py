"""Answers marked in a context, in any of the ways files write them: their texts, and where the first one starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from compress.errors import DataError
from compress.recipe.schema import Task
from compress.tasks.parsing.columns import SKIP_HINT, column_value, is_missing, label_columns

IMPOSSIBLE = "is_impossible"
"""The column in which SQuAD 2.0 marks questions without an answer."""
OFFSET = "answer_start"
"""SQuAD's name for an answer's offset; where rows hold one answer in a column of its own, by default a column too."""
MAX_ANSWERS = 100
"""Accepted answers of a question: those of all questions are stored in one array."""
SHOWN_CHARS = 60
"""How much of an answer a message shows."""


class AnswerSpan(NamedTuple):
    """An answer's text and its start in the context; None where the file does not give it."""

    text: str
    start: int | None


def parse_answers(raw: Mapping[str, Any], context: str, task: Task, where: str) -> tuple[list[str], int]:
    """Return the texts of all accepted answers, and the first character of the first; ([], -1) without an answer.

    A text that is not at its offset, but elsewhere in the context, is taken at the nearest occurrence.
    """
    spans = [] if _is_impossible(raw.get(IMPOSSIBLE)) else _read_spans(raw, task, where)
    if len({span.text for span in spans}) > MAX_ANSWERS:
        raise DataError(
            f"{where}: there are more than {MAX_ANSWERS} different answers to one question.", hint=SKIP_HINT
        )
    located = [_locate(span, context, where) for span in spans]
    return [span.text for span in located], located[0].start if located and located[0].start is not None else -1


def _is_impossible(value: Any) -> bool:
    return value is True or str(value).strip().lower() in ("true", "1", "1.0")


def _read_spans(raw: Mapping[str, Any], task: Task, where: str) -> list[AnswerSpan]:
    """Return the answers of a list of objects, an object of lists, a list of texts, or a text and its offset."""
    column, *offset = label_columns(task)
    value = column_value(raw, column, task, where)
    if isinstance(value, Mapping):
        return _from_lists(value, column, where)
    if isinstance(value, (list, tuple)):
        return [_from_entry(entry, column, where) for entry in value]
    start = column_value(raw, offset[0], task, where) if offset else raw.get(OFFSET)
    # An empty cell is a question without an answer.
    return [] if is_missing(value) else [_parse_span(value, start, column, where)]


def _from_lists(value: Mapping[str, Any], column: str, where: str) -> list[AnswerSpan]:
    texts = value.get("text")
    starts = value.get(OFFSET)
    if not isinstance(texts, Sequence) or isinstance(texts, str):
        raise DataError(f"{where}: column '{column}' holds an object without a list of 'text'.")
    if starts is None:
        starts = [None] * len(texts)
    if not isinstance(starts, Sequence) or len(starts) != len(texts):
        raise DataError(f"{where}: column '{column}' has {len(texts)} texts, and its '{OFFSET}' does not fit them.")
    return [_parse_span(text, start, column, where) for text, start in zip(texts, starts, strict=True)]


def _from_entry(entry: Any, column: str, where: str) -> AnswerSpan:
    if not isinstance(entry, Mapping):
        return _parse_span(entry, None, column, where)
    if "text" not in entry:
        raise DataError(f"{where}: an answer in column '{column}' has no 'text'.")
    return _parse_span(entry["text"], entry.get(OFFSET), column, where)


def _parse_span(text: Any, start: Any, column: str, where: str) -> AnswerSpan:
    """Return a checked answer without surrounding spaces, its offset moved accordingly."""
    if not isinstance(text, str) or not text.strip():
        raise DataError(
            f"{where}: an answer in column '{column}' is {str(text)[:SHOWN_CHARS]!r} where text is expected.",
            hint="a question without an answer has an empty list of answers",
        )
    stripped = text.strip()
    offset = None if is_missing(start) else _parse_offset(start, where)
    return AnswerSpan(stripped, None if offset is None else offset + text.index(stripped))


def _parse_offset(value: Any, where: str) -> int:
    try:
        if isinstance(value, bool) or float(value) != int(value):
            raise ValueError
        return int(value)
    except (TypeError, ValueError, OverflowError) as error:
        message = f"an answer's offset is {str(value)[:SHOWN_CHARS]!r} where a number is expected"
        raise DataError(f"{where}: {message}.") from error


def _locate(span: AnswerSpan, context: str, where: str) -> AnswerSpan:
    """Return the occurrence of the answer nearest to its offset; the first one where there is no offset."""
    offset = 0 if span.start is None else span.start
    if offset >= 0 and context.startswith(span.text, offset) and span.start is not None:
        return span
    before = context.rfind(span.text, 0, max(0, offset) + len(span.text))
    after = context.find(span.text, max(0, offset))
    occurrences = [start for start in (before, after) if start >= 0]
    if not occurrences:
        raise DataError(
            f"{where}: the answer {span.text[:SHOWN_CHARS]!r} does not occur in its context.",
            hint=f"answers are spans of the context; {SKIP_HINT}",
        )
    return AnswerSpan(span.text, min(occurrences, key=lambda start: abs(start - offset)))
