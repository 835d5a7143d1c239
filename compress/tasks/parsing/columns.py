"""Values of a raw row by column name, with errors that name the file, the row and the columns there are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from compress.errors import DataError, nearest
from compress.recipe.schema import Task

SHOWN, COLUMNS = 40, 20
"""How much of a column's name, and how many columns, a message shows."""

EMPTY = "(empty)"
"""What a cell that holds nothing is called where values of a column are told apart."""


def pick(raw: Mapping[str, Any], name: str, task: Task, where: str) -> Any:
    """The value of column ``name``, or of the first of its aliases that this row has."""
    if name in raw:
        return raw[name]
    aliases = task.aliases.get(name, ())
    for alias in aliases:
        if alias in raw:
            return raw[alias]
    other = f" (nor {', '.join(aliases)})" if aliases else ""
    listing = ", ".join(repr(str(column)[:SHOWN]) for column in list(raw)[:COLUMNS])
    listing += f" and {len(raw) - COLUMNS} more" if len(raw) > COLUMNS else ""
    raise DataError(
        f"{where}: there is no column '{name}'{other}; the columns are {listing}{_guess(name, raw)}",
        hint=f"{_naming(name, task)}; task.data.header: false says that a file has no header",
    )


def has_column(raw: Mapping[str, Any], name: str, task: Task) -> bool:
    """Whether a row has a column of this name, or of one of its aliases."""
    return any(each in raw for each in (name, *task.aliases.get(name, ())))


def _naming(name: str, task: Task) -> str:
    """The key of the recipe to look at."""
    if name in task.slices and name not in (*task.text, *label_columns(task)):
        return "task.slices names the columns by whose values scores are told apart"
    if name in soft_columns(task):
        return "task.soft_labels names the columns of probabilities"
    return "name the columns with task.text and task.label"


def _guess(name: str, raw: Mapping[str, Any]) -> str:
    found = nearest(name, raw)
    return found.partition(" (known")[0]


def text(raw: Mapping[str, Any], name: str, task: Task, where: str) -> str:
    """A column's text; an empty one is text too, a missing one is not."""
    value = pick(raw, name, task, where)
    if not isinstance(value, str):
        raise DataError(f"{where}: column '{name}' holds {_told(value)} where text is expected.")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(f"{where}: column '{name}' holds half a character ({error.reason}).") from error
    return value


def listed(cell: Any, *items: type) -> list[Any] | None:
    """The list in a cell, or the JSON list that its text is (a csv has no other way to hold one); None for neither.

    A text may begin with a bracket and be no list: where ``items`` are given it is one if it holds nothing else.
    """
    if isinstance(cell, (list, tuple)):
        return list(cell)
    if not isinstance(cell, str) or not cell.lstrip().startswith("["):
        return None
    try:
        found = json.loads(cell)
    except ValueError:
        return None
    return found if all(isinstance(item, items or object) for item in found) else None


def text_fields(raw: Mapping[str, Any], task: Task, where: str) -> dict[str, Any]:
    """The canonical text fields of every kind that reads one text or a pair."""
    first = text(raw, task.text[0], task, where)
    second = text(raw, task.text[1], task, where) if len(task.text) > 1 else None
    return {"text": first, "text_pair": second}


def label_columns(task: Task) -> tuple[str, ...]:
    """The columns that hold the answer."""
    return (task.label,) if isinstance(task.label, str) else task.label


def soft_columns(task: Task) -> tuple[str, ...]:
    """The columns of train that hold probabilities, if any."""
    return (task.soft_labels,) if isinstance(task.soft_labels, str) else task.soft_labels or ()


def is_missing(value: Any) -> bool:
    """Whether a label's place is empty: null, not a number, or blank."""
    return (
        value is None or (isinstance(value, str) and not value.strip()) or (isinstance(value, float) and value != value)
    )


def label_name(value: Any) -> str:
    """A raw label as a class is named: 1.0 (pandas' way of writing an integer beside gaps) and 1 are one class."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _told(value: Any) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"
