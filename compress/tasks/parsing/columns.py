"""Values of a raw row by column name, with errors that name the file, the row and the columns."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.errors import DataError, UsageError, suggestion

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task

SHOWN_CHARS, SHOWN_COLUMNS = 40, 20
"""How much of a column's name or of a value, and how many columns, a message shows."""

SKIP_HINT = "task.data.bad_rows: skip leaves such rows out and counts them"
LABEL_HINT = "every row of train, select and test needs a label"

SEPARATORS = {
    "\t": "tabs: set task.data.format: tsv",
    ",": "commas: set task.data.format: csv",
    ";": "semicolons: set task.data.format: csv",
    "|": "bars: set task.data.format: csv",
}
"""What separates columns that were read as one."""
LARGEST = float(np.finfo(np.float32).max)
"""Of the numbers that models compute: beyond it they are infinite."""
EMPTY_VALUE = "(empty)"
"""The name of the slice of rows whose cell is empty."""


def separator_hint(columns: Sequence[Any]) -> str | None:
    """Return a hint where several columns were read as one; None otherwise."""
    if len(columns) != 1 or not (found := next((each for each in SEPARATORS if each in str(columns[0])), None)):
        return None
    return f"its columns seem to be separated by {SEPARATORS[found]}"


class MissingColumn(DataError):
    """A column that rows do not have; ``key`` of the task names it, or is where the file is named."""

    exit_code = UsageError.exit_code

    def __init__(self, message: str, hint: str | None = None, key: str = "text") -> None:
        super().__init__(message, hint=hint)
        self.key = key


class ReadValues(dict[str, Any]):
    """The values of the columns that are read of a row; messages name all of its ``columns``."""

    def __init__(self, values: Mapping[str, Any], columns: tuple[str, ...]) -> None:
        super().__init__(values)
        self.columns = columns


def column_names(raw: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of all columns of a row, whether they are read or not."""
    return raw.columns if isinstance(raw, ReadValues) else list(raw)


def check_distinct(columns: list[str], where: str) -> list[str]:
    """Return the columns of a file, or raise a DataError where several have one name."""
    duplicates = sorted(column for column, count in Counter(columns).items() if column and count > 1)
    if duplicates:
        raise DataError(f"{where}: several columns are named {', '.join(map(repr, duplicates[:SHOWN_COLUMNS]))}.")
    return columns


def column_value(raw: Mapping[str, Any], name: str, task: Task, where: str) -> Any:
    """Return the value of column ``name``, or of the first of its aliases that this row has."""
    if name in raw:
        return raw[name]
    aliases = task.aliases.get(name, ())
    for column in aliases:
        if column in raw:
            return raw[column]
    other = f" (nor {', '.join(aliases)})" if aliases else ""
    known = column_names(raw)
    listing = ", ".join(repr(str(column)[:SHOWN_CHARS]) for column in known[:SHOWN_COLUMNS])
    listing += f" and {len(known) - SHOWN_COLUMNS} more" if len(known) > SHOWN_COLUMNS else ""
    key = next((key for key, columns in _columns_by_key(task).items() if name in columns), "data")
    option = f" (--{key} of compress init)" if key in ("text", "label") else ""
    hint = f"task.{key} names the column{option}; for a file without a header, set task.data.header: false"
    if key == "data":
        hint = "documents (task.data.corpus) are in the label's column, or in one called text"
    hint = separator_hint(known) or hint
    message = f"{where}: there is no column '{name}'{other}; the columns are {listing}{suggestion(name, known)}"
    raise MissingColumn(message, hint, key)


def _columns_by_key(task: Task) -> dict[str, tuple[str, ...]]:
    """Return the columns that a task names, by the key that names them."""
    return {
        "text": task.text,
        "label": label_columns(task),
        "soft_labels": soft_label_columns(task),
        "negatives": () if task.negatives is None else (task.negatives,),
        "slices": task.slices,
        "data.group": () if task.data.group is None else (task.data.group,),
    }


def named_columns(task: Task) -> set[str]:
    """Return all columns that a task names, and their aliases."""
    names = {name for columns in _columns_by_key(task).values() for name in columns}
    return names.union(*(task.aliases.get(name, ()) for name in names))


def has_column(raw: Mapping[str, Any], name: str, task: Task) -> bool:
    """Return whether a row has a column of this name, or of one of its aliases."""
    return any(column in raw for column in (name, *task.aliases.get(name, ())))


def text_value(raw: Mapping[str, Any], name: str, task: Task, where: str) -> str:
    """Return a column's text; it may be empty, but not missing."""
    value = column_value(raw, name, task, where)
    if not isinstance(value, str):
        raise wrong_value(value, f"column '{name}'", "text", where)
    return whole_text(value, f"column '{name}'", where)


def whole_text(text: str, what: str, where: str) -> str:
    """Return a text, or raise a DataError where it holds half of a character, which JSON may hold and no file can."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(f"{where}: {what} holds half a character ({error.reason}).", hint=SKIP_HINT) from error
    return text


def parse_number(value: Any, what: str, where: str, expected: str = "a number", hint: str | None = None) -> float:
    """Return a number that float32 can hold, or raise a DataError about ``what`` (`the score`)."""
    is_other = value is None or isinstance(value, bool) or (isinstance(value, str) and "_" in value)
    try:
        number = math.nan if is_other else float(value)  # which reads `1_5` as 15
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= LARGEST:
        raise wrong_value(value, what, expected, where, hint)
    return number


def wrong_value(value: Any, what: str, expected: str, where: str, hint: str | None = None) -> DataError:
    """Return `train.tsv, row 17: the score is 'high' where a number is expected.`."""
    content = "empty" if is_missing(value) else repr(value)[:SHOWN_CHARS]
    return DataError(f"{where}: {what} is {content} where {expected} is expected.", hint=hint)


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
    texts = [text_value(raw, name, task, where) for name in task.text]
    return {"text": texts[0], "text_pair": texts[1] if len(texts) > 1 else None}


def label_columns(task: Task) -> tuple[str, ...]:
    """Return the columns that hold the label."""
    return (task.label,) if isinstance(task.label, str) else task.label


def soft_label_columns(task: Task) -> tuple[str, ...]:
    """Return the columns of train that hold probabilities, if any."""
    return (task.soft_labels,) if isinstance(task.soft_labels, str) else task.soft_labels or ()


def is_missing(value: Any) -> bool:
    """Return whether a cell is empty: null, NaN, or blank."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def class_name(value: Any) -> str:
    """Return a raw label as a class name: 1.0 (as pandas writes integers in a column with gaps) and 1 are one class."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
