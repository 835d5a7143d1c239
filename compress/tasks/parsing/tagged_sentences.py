"""Tagged sentences as files hold them: words and tags in lists, in JSON lists in a cell, or parted by spaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compress.errors import DataError, pluralize
from compress.recipe.schema import Task
from compress.tasks.parsing.bio_tags import is_tag
from compress.tasks.parsing.columns import is_missing, listed


def tagged_words(words: Any, tags: Any, task: Task, where: str) -> tuple[list[str], list[str]]:
    """The words and tags of a row, as many of the one as of the other; or a DataError that starts with ``where``."""
    found, names = words_in(words, where), tags_in(tags, task, where)
    if len(found) != len(names):
        raise DataError(
            f"{where}: {pluralize(len(found), 'word')} and {pluralize(len(names), 'tag')}.",
            hint="every word needs one tag; a text that is not a list is parted at white space",
        )
    return found, names


def words_in(cell: Any, where: str) -> list[str]:
    """The words of a cell."""
    words = _entries(cell, str)
    if words is None or not all(isinstance(word, str) for word in words):
        raise DataError(f"{where}: the words are {_told(cell)} where a list of texts, or a text, is expected.")
    if not words:
        raise DataError(f"{where}: the sentence has no words.")
    for place, word in enumerate(words, 1):
        if not is_whole(word):
            wrong = "is empty" if not word else f"is {word[:40]!r}, with white space or half a character in it"
            raise DataError(f"{where}: word {place} {wrong}.", hint="a word is a text without white space")
    return words


def tags_in(cell: Any, task: Task, where: str) -> list[str]:
    """The tags of a cell by name."""
    found = _entries(cell, str, int)
    if found is None:
        raise DataError(f"{where}: the tags are {_told(cell)} where a list, or tags with spaces between, is expected.")
    return [_tag(value, task, where) for value in found]


def named_tags(cell: Any, task: Task) -> Iterator[str]:
    """What a cell of train calls its tags, right or wrong; nothing where it cannot be read at all."""
    for value in _entries(cell, str, int) or ():
        yield _by_number(value, task) or str(value)


def is_whole(word: Any) -> bool:
    """Whether it is a text that holds something, no white space, and no half of a character."""
    return isinstance(word, str) and word.split() == [word] and not any("\ud800" <= each <= "\udfff" for each in word)


def _tag(value: Any, task: Task, where: str) -> str:
    name = _by_number(value, task) or value
    if isinstance(name, str) and is_tag(name):
        return name
    number = isinstance(value, int) or (isinstance(value, str) and value.isdigit())
    hint = "B- begins an entity and I- goes on with it; of other schemes, write S- as B- and E- or L- as I-"
    if number:
        hint = "task.labels names the tags that numbers stand for, task.first_label the number of the first"
    raise DataError(f"{where}: the tag {str(value)[:40]!r} is neither O nor B- or I- with a type.", hint=hint)


def _by_number(value: Any, task: Task) -> str | None:
    """The tag that a number stands for where the recipe lists the tags."""
    if task.labels is None or isinstance(value, bool) or not str(value).isdecimal():
        return None
    place = int(value) - task.first_label
    return task.labels[place] if 0 <= place < len(task.labels) else None


def _entries(cell: Any, *items: type) -> list[Any] | None:
    """A list as it is, a text's JSON list of ``items``, else its words; None for what is neither list nor text."""
    found = listed(cell, *items)  # a sentence may begin with a bracket too, even with [ 1 ]
    return cell.split() if found is None and isinstance(cell, str) else found


def _told(cell: Any) -> str:
    return "missing" if is_missing(cell) else f"{type(cell).__name__} {str(cell)[:40]!r}"
