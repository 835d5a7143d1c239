"""Tagged sentences as files hold them: words and tags in lists, in JSON lists in a cell, or separated by spaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compress.errors import DataError, pluralize
from compress.tasks.parsing.bio_tags import is_tag
from compress.tasks.parsing.columns import parse_list, wrong_value

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task


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
