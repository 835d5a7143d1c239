"""Values of a raw row by column name, with errors that name the file, the row and the columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from compress.errors import DataError, nearest
from compress.recipe.schema import Task

SHOWN_CHARS, SHOWN_COLUMNS = 40, 20
"""How much of a column's name, and how many columns, a message shows."""

SKIP_HINT = "task.data.bad_rows: skip leaves such rows out and counts them"

EMPTY_VALUE = "(empty)"
"""The name of the slice of rows whose cell is empty."""


def column_value(raw: Mapping[str, Any], name: str, task: Task, where: str) -> Any:
    """Return the value of column ``name``, or of the first of its aliases that this row has."""
    if name in raw:
        return raw[name]
    aliases = task.aliases.get(name, ())
    for alias in aliases:
        if alias in raw:
            return raw[alias]
    other = f" (nor {', '.join(aliases)})" if aliases else ""
    listing = ", ".join(repr(str(column)[:SHOWN_CHARS]) for column in list(raw)[:SHOWN_COLUMNS])
    listing += f" and {len(raw) - SHOWN_COLUMNS} more" if len(raw) > SHOWN_COLUMNS else ""
    guess = nearest(name, raw).partition(" (known")[0]
    raise DataError(
        f"{where}: there is no column '{name}'{other}; the columns are {listing}{guess}",
        hint=f"{_key_hint(name, task)}; for a file without a header, set task.data.header: false",
    )


def has_column(raw: Mapping[str, Any], name: str, task: Task) -> bool:
    """Return whether a row has a column of this name, or of one of its aliases."""
    return any(column in raw for column in (name, *task.aliases.get(name, ())))


def _key_hint(name: str, task: Task) -> str:
    """Return which key of the recipe names the column."""
    if name in task.slices and name not in (*task.text, *label_columns(task)):
        return "task.slices names the columns by which scores are broken down"
    if name in soft_label_columns(task):
        return "task.soft_labels names the columns of probabilities"
    return "name the columns with task.text and task.label"


def text_value(raw: Mapping[str, Any], name: str, task: Task, where: str) -> str:
    """Return a column's text; it may be empty, but not missing."""
    value = column_value(raw, name, task, where)
    if not isinstance(value, str):
        content = "nothing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"
        raise DataError(f"{where}: column '{name}' holds {content} where text is expected.")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(f"{where}: column '{name}' holds half a character ({error.reason}).") from error
    return value


def parse_list(cell: Any, *items: type) -> list[Any] | None:
    """Return the list in a cell, or the JSON list that its text is (the only way a csv can hold one); else None.

    A text may begin with a bracket and be no list: where ``items`` are given it is one if it holds nothing else.
    """
    if isinstance(cell, (list, tuple)):
        return list(cell)
    if not isinstance(cell, str) or not cell.lstrip().startswith("["):
        return None
    try:
        values = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    return values if all(isinstance(item, items or object) for item in values) else None


def text_fields(raw: Mapping[str, Any], task: Task, where: str) -> dict[str, Any]:
    """Return the canonical text fields of every kind that reads one text or a pair."""
    first = text_value(raw, task.text[0], task, where)
    second = text_value(raw, task.text[1], task, where) if len(task.text) > 1 else None
    return {"text": first, "text_pair": second}


def label_columns(task: Task) -> tuple[str, ...]:
    """Return the columns that hold the label."""
    return (task.label,) if isinstance(task.label, str) else task.label


def soft_label_columns(task: Task) -> tuple[str, ...]:
    """Return the columns of train that hold probabilities, if any."""
    return (task.soft_labels,) if isinstance(task.soft_labels, str) else task.soft_labels or ()


def is_missing(value: Any) -> bool:
    """Return whether a cell is empty: null, NaN, or blank."""
    return (
        value is None or (isinstance(value, str) and not value.strip()) or (isinstance(value, float) and value != value)
    )


def class_name(value: Any) -> str:
    """Return a raw label as a class name: 1.0 (as pandas writes integers in a column with gaps) and 1 are one class."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
