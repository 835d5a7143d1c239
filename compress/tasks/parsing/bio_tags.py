"""Tags of words: how files mark entities, which entities rows of tags hold, and tagged sentences in columns. Pure.

A tag is `O`, or `B-` or `I-` with a type. In canonical rows it is a number: 0 for O, then B and I of each type in
turn, so that type and beginning follow from the number alone. -1 pads rows after their last word. Files hold words and
tags in lists, in JSON lists in a cell, or separated by spaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError, pluralize
from compress.tasks.parsing.columns import parse_list, wrong_value

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task


OUTSIDE, BEGIN, INSIDE = "O", "B-", "I-"
PAD_TAG = -1
"""Pads rows after their last word."""

Tags = NDArray[np.int16]
Counts = NDArray[np.int64]


def is_tag(name: str) -> bool:
    """Return whether it is `O`, or `B-` or `I-` with a type."""
    return name == OUTSIDE or (name[:2] in (BEGIN, INSIDE) and len(name) > 2)


def tag_names(types: Iterable[str]) -> tuple[str, ...]:
    """Return all tags of these types, in the order of their numbers."""
    return (OUTSIDE, *(prefix + kind for kind in types for prefix in (BEGIN, INSIDE)))


def type_names(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the types of `tag_names`."""
    return tuple(tag.removeprefix(BEGIN) for tag in tags[1::2])


def from_iob1(tags: Sequence[str]) -> list[str]:
    """Return BIO from IOB1, where B- only separates an entity from one of its type right before it."""
    return [
        BEGIN + tag[2:] if tag.startswith(INSIDE) and previous[2:] != tag[2:] else tag
        for previous, tag in zip((OUTSIDE, *tags), tags, strict=False)
    ]


class Entities(NamedTuple):
    """The entities of many rows, row by row and from left to right."""

    row: NDArray[np.intp]
    start: NDArray[np.intp]
    """Index of the first word."""
    end: NDArray[np.intp]
    """Index after the last word."""
    type: NDArray[np.int64]


def entities(tags: Tags) -> Entities:
    """Return the entities in ``tags`` (rows, words), as seqeval's default and CoNLL's script count them.

    One begins at each B-, and at an I- that follows O or another type; it continues while I- of its type follow.
    """
    types = (tags + 1) // 2 - 1  # -1 outside of entities and after rows
    within = types >= 0
    edge = np.full((len(tags), 1), PAD_TAG, types.dtype)
    begins = within & ((tags % 2 == 1) | (types != np.hstack([edge, types[:, :-1]])))
    continues = np.hstack([(within & ~begins)[:, 1:], np.zeros((len(tags), 1), np.bool_)])
    row, start = np.nonzero(begins)
    end = np.nonzero(within & ~continues)[1] + 1
    return Entities(row, start, end, types[row, start].astype(np.int64))


def entity_counts(predicted: Tags, true: Tags, types: int) -> tuple[Counts, Counts, Counts]:
    """Return per row and type the entities that are predicted correctly, predicted, and true: each (rows, types)."""
    ours, theirs = entities(predicted), entities(true)
    rows, words = true.shape
    key, true_key = (np.ravel_multi_index(side, (rows, words, words + 1, types)) for side in (ours, theirs))
    hits = np.isin(key, true_key)
    parts = (ours.row[hits], ours.type[hits]), (ours.row, ours.type), (theirs.row, theirs.type)
    correct, predicted_all, true_all = (_count_by_type(row, kind, rows, types) for row, kind in parts)
    return correct, predicted_all, true_all


def _count_by_type(row: NDArray[np.intp], kind: Counts, rows: int, types: int) -> Counts:
    return np.bincount(row * types + kind, minlength=rows * types).reshape(rows, types)


def parse_tagged_words(words: Any, tags: Any, task: Task, where: str) -> tuple[list[str], list[str]]:
    """Return the words and tags of a row, equally many, or raise a DataError that starts with ``where``."""
    texts, values = parse_words(words, where), _cell_entries(tags, str, int)
    if values is None:
        raise wrong_value(tags, "the list of tags", "a list, or tags with spaces,", where)
    names = [_parse_tag(value, task, where) for value in values]
    if len(texts) != len(names):
        hint = "every word needs one tag; a text that is not a list is split at white space"
        raise DataError(f"{where}: {pluralize(len(texts), 'word')} and {pluralize(len(names), 'tag')}.", hint=hint)
    return texts, names


def parse_words(cell: Any, where: str) -> list[str]:
    """Return the words of a cell."""
    words = _cell_entries(cell, str)
    if words is None:
        raise wrong_value(cell, "the list of words", "a list of texts, or a text,", where)
    if not words:
        raise DataError(f"{where}: the sentence has no words.")
    for number, word in enumerate(words, 1):
        if not is_word(word):
            raise wrong_value(word, f"word {number}", "a text without white space or half a character", where)
    return words


def parse_names(cell: Any, what: str, where: str) -> list[str]:
    """Return the tags of a cell, which may have any names; ``what`` they are in messages."""
    entries = _cell_entries(cell, str, int)
    if entries is None:
        raise wrong_value(cell, what, "a list, or tags with spaces,", where)
    return [str(entry) for entry in entries]


def cell_tags(cell: Any, task: Task) -> Iterator[str]:
    """Yield the tags of a cell of train, valid or not; nothing where it cannot be read at all."""
    for value in _cell_entries(cell, str, int) or ():
        yield _tag_by_number(value, task) or str(value)


def is_word(word: Any) -> bool:
    """Return whether it is a non-empty text without white space and without half of a character."""
    return isinstance(word, str) and word.split() == [word] and not any("\ud800" <= char <= "\udfff" for char in word)


def _parse_tag(value: Any, task: Task, where: str) -> str:
    name = _tag_by_number(value, task) or value
    if isinstance(name, str) and is_tag(name):
        return name
    raise DataError(
        f"{where}: the tag {str(value)[:40]!r} is neither O nor B- or I- with a type.",
        hint="task.labels names the tags of numbers in order, from task.first_label on; other schemes: write S- as B- "
        "and E- or L- as I-",
    )


def _tag_by_number(value: Any, task: Task) -> str | None:
    """Return the tag of a number where the recipe lists the tags."""
    if task.labels is None or isinstance(value, bool) or not str(value).isdecimal():
        return None
    index = int(value) - task.first_label
    return task.labels[index] if 0 <= index < len(task.labels) else None


def _cell_entries(cell: Any, *items: type) -> list[Any] | None:
    """Return a list as it is, a text's JSON list of ``items``, else its words; None for neither list nor text."""
    entries = parse_list(cell, *items)  # a sentence may begin with a bracket too, even with [ 1 ]
    return cell.split() if entries is None and isinstance(cell, str) else entries
