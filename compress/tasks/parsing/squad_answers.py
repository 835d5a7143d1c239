"""Answers that are marked in a context, however a file writes them: their texts, and where the first one stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from compress.errors import DataError
from compress.recipe.schema import Task
from compress.tasks.kinds.candidate_kind import LEAVE_OUT
from compress.tasks.parsing.columns import is_missing, label_columns, pick

IMPOSSIBLE = "is_impossible"
"""The column in which SQuAD 2.0 says that a question has no answer."""
OFFSET = "answer_start"
"""What SQuAD calls an answer's place; where rows hold one answer in a column of its own, by default a column too."""
MOST = 100
"""Accepted answers of a question: those of all questions are held side by side."""
SHOWN = 60
"""How much of an answer a message shows."""


class Mark(NamedTuple):
    """An answer's text and where it should begin; None where the file does not say."""

    text: str
    start: int | None


def marked_answers(raw: Mapping[str, Any], context: str, task: Task, where: str) -> tuple[list[str], int]:
    """The texts of all accepted answers, and the first character of the first one; ([], -1) where there is none.

    A text that does not stand where the file says, but elsewhere in the context, is taken at the nearest place.
    """
    answers = [] if _is_impossible(raw.get(IMPOSSIBLE)) else _marks(raw, task, where)
    if len({answer.text for answer in answers}) > MOST:
        raise DataError(f"{where}: there are more than {MOST} different answers to one question.", hint=LEAVE_OUT)
    placed = [_placed(answer, context, where) for answer in answers]
    return [answer.text for answer in placed], placed[0].start if placed and placed[0].start is not None else -1


def _is_impossible(value: Any) -> bool:
    return value is True or str(value).strip().lower() in ("true", "1", "1.0")


def _marks(raw: Mapping[str, Any], task: Task, where: str) -> list[Mark]:
    """The answers as the file has them: a list of objects, an object of lists, a list of texts, or text and offset."""
    column, *offset = label_columns(task)
    value = pick(raw, column, task, where)
    if isinstance(value, Mapping):
        return _from_lists(value, column, where)
    if isinstance(value, (list, tuple)):
        return [_from_entry(entry, column, where) for entry in value]
    start = pick(raw, offset[0], task, where) if offset else raw.get(OFFSET)
    # An empty cell is a question without an answer.
    return [] if is_missing(value) else [_mark(value, start, column, where)]


def _from_lists(value: Mapping[str, Any], column: str, where: str) -> list[Mark]:
    texts = value.get("text")
    starts = value.get(OFFSET)
    if not isinstance(texts, Sequence) or isinstance(texts, str):
        raise DataError(f"{where}: column '{column}' holds an object without a list of 'text'.")
    if starts is None:
        starts = [None] * len(texts)
    if not isinstance(starts, Sequence) or len(starts) != len(texts):
        raise DataError(f"{where}: column '{column}' has {len(texts)} texts, and its '{OFFSET}' does not fit them.")
    return [_mark(text, start, column, where) for text, start in zip(texts, starts, strict=True)]


def _from_entry(entry: Any, column: str, where: str) -> Mark:
    if not isinstance(entry, Mapping):
        return _mark(entry, None, column, where)
    if "text" not in entry:
        raise DataError(f"{where}: an answer in column '{column}' has no 'text'.")
    return _mark(entry["text"], entry.get(OFFSET), column, where)


def _mark(text: Any, start: Any, column: str, where: str) -> Mark:
    """A checked answer, without spaces around it (its offset moves along)."""
    if not isinstance(text, str) or not text.strip():
        raise DataError(
            f"{where}: an answer in column '{column}' is {str(text)[:SHOWN]!r} where text is expected.",
            hint="a question without an answer has an empty list of answers",
        )
    bare = text.strip()
    place = None if is_missing(start) else _whole(start, where)
    return Mark(bare, None if place is None else place + text.index(bare))


def _whole(value: Any, where: str) -> int:
    try:
        if isinstance(value, bool) or float(value) != int(value):
            raise ValueError
        return int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where}: an answer's offset is {str(value)[:SHOWN]!r} where a number is expected.") from error


def _placed(answer: Mark, context: str, where: str) -> Mark:
    """The answer where it stands nearest to its offset; the first place where there is none."""
    wanted = 0 if answer.start is None else answer.start
    if wanted >= 0 and context.startswith(answer.text, wanted) and answer.start is not None:
        return answer
    before = context.rfind(answer.text, 0, max(0, wanted) + len(answer.text))
    behind = context.find(answer.text, max(0, wanted))
    found = [place for place in (before, behind) if place >= 0]
    if not found:
        raise DataError(
            f"{where}: the answer {answer.text[:SHOWN]!r} does not stand in its context.",
            hint=f"answers are places in the context; {LEAVE_OUT}",
        )
    return Mark(answer.text, min(found, key=lambda place: abs(place - wanted)))
