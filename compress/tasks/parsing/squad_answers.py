"""Answers marked in a context, in any of the ways files write them: their texts, and where the first one starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compress.errors import DataError
from compress.tasks.parsing.columns import SKIP_HINT, column_value, is_missing, label_columns, parse_number, wrong_value

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task

IMPOSSIBLE = "is_impossible"
"""The column in which SQuAD 2.0 marks questions without an answer."""
OFFSET = "answer_start"
"""SQuAD's name for an answer's offset; where rows hold one answer in a column of its own, by default a column too."""
MAX_ANSWERS = 100
"""Accepted answers of a question: those of all questions are stored in one array."""


def parse_answers(raw: Mapping[str, Any], context: str, task: Task, where: str) -> tuple[list[str], int]:
    """Return the texts of all accepted answers, and the first character of the first; ([], -1) without an answer.

    A text that is not at its offset, but elsewhere in the context, is taken at the nearest occurrence.
    """
    is_impossible = str(raw.get(IMPOSSIBLE)).strip().lower() in ("true", "1", "1.0")
    answers = [] if is_impossible else _read_answers(raw, task, where)
    if len({str(text) for text, _ in answers}) > MAX_ANSWERS:
        raise DataError(f"{where}: there are more than {MAX_ANSWERS} different answers.", hint=SKIP_HINT)
    located = [_locate(text, start, context, where) for text, start in answers]
    return [text for text, _ in located], located[0][1] if located else -1


def _read_answers(raw: Mapping[str, Any], task: Task, where: str) -> list[tuple[Any, Any]]:
    """Return text and offset of an object of lists, a list of objects or of texts, or a text and its offset."""
    column, *offset = label_columns(task)
    value = column_value(raw, column, task, where)
    if isinstance(value, Mapping):
        texts = value.get("text")
        if not isinstance(texts, Sequence) or isinstance(texts, str):
            raise DataError(f"{where}: column '{column}' holds an object without a list of 'text'.")
        starts = [None] * len(texts) if value.get(OFFSET) is None else value[OFFSET]
        if not isinstance(starts, Sequence) or len(starts) != len(texts):
            raise DataError(f"{where}: column '{column}' has {len(texts)} texts, and its '{OFFSET}' does not fit them.")
        return list(zip(texts, starts, strict=True))
    if isinstance(value, (list, tuple)):
        objects = [entry if isinstance(entry, Mapping) else {"text": entry} for entry in value]
        return [(entry.get("text"), entry.get(OFFSET)) for entry in objects]
    start = column_value(raw, offset[0], task, where) if offset else raw.get(OFFSET)
    # An empty cell is a question without an answer.
    return [] if is_missing(value) else [(value, start)]


def _locate(text: Any, start: Any, context: str, where: str) -> tuple[str, int]:
    """Return an answer without surrounding spaces, and its occurrence nearest to the offset, or the first one."""
    if not isinstance(text, str) or not text.strip():
        hint = "a question without an answer has an empty list of answers"
        raise wrong_value(text, "an answer", "text", where, hint)
    answer = text.strip()
    given = 0.0 if is_missing(start) else parse_number(start, "an answer's offset", where)
    if not given.is_integer():
        raise wrong_value(start, "an answer's offset", "a whole number", where)
    offset = max(0, int(given) + text.index(answer))
    ends = context.rfind(answer, 0, offset + len(answer)), context.find(answer, offset)
    occurrences = [occurrence for occurrence in ends if occurrence >= 0]
    if not occurrences:
        hint = f"answers are spans of the context; {SKIP_HINT}"
        raise DataError(f"{where}: the answer {answer[:60]!r} does not occur in its context.", hint=hint)
    return answer, min(occurrences, key=lambda occurrence: abs(occurrence - offset))
