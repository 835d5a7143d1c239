"""Labels of rows: which classes there are, the class of a row, and soft labels.

Soft labels are probabilities in rows of train that another model, such as a large one, has predicted already.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from compress.batch_arrays import LABELLED, SOFT_LABELS
from compress.errors import DataError, nearest, pluralize
from compress.tasks.base import Row
from compress.tasks.kind import RowReader
from compress.tasks.parsing.columns import (
    LABEL_HINT,
    SKIP_HINT,
    class_name,
    column_value,
    has_column,
    is_missing,
    label_columns,
    parse_number,
    soft_label_columns,
    text_fields,
    whole_text,
    wrong_value,
)

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task


class UnknownClass(DataError):
    """A row's label is none of the classes that the task has."""

    def __init__(self, message: str, label: str) -> None:
        super().__init__(message)
        self.label = label


def collect_classes(values: Iterable[Any], least: int) -> tuple[str, ...]:
    """Return the distinct classes in order: by number where all are whole numbers, else by name.

    Labels that are no class are left out, since they are reported with their row when that is read; they are an error
    here where without them there are fewer than ``least`` classes.
    """
    names, fault = set[str](), None
    for value in values:
        if is_missing(value) or (isinstance(value, str) and value in names):
            continue
        try:
            names.add(_one_class(value, "train"))
        except DataError as error:
            fault = fault or error
    if fault and len(names) < least:
        hint = None if fault.hint == SKIP_HINT else fault.hint
        raise DataError(f"{fault.message} Without such labels there are too few classes.", hint=hint)
    _refuse_non_classes(names)
    return tuple(sorted(names, key=lambda name: (int(name), name)) if all(map(_is_whole, names)) else sorted(names))


def _one_class(value: Any, where: str) -> str:
    """Return the name of the class that a label is, or raise a DataError where it is a list, a mapping or broken."""
    if isinstance(value, (list, tuple, dict)):
        message = f"{where}: the label is a list or mapping ({str(value)[:60]}) where one class is expected."
        raise DataError(message, hint="task.kind: multi_label reads lists of classes")
    return whole_text(class_name(value), f"the label {class_name(value)[:40]!r}", where)


def class_index(value: Any, task: Task, labels: tuple[str, ...], where: str) -> int:
    """Return the class that ``value`` names, or numbers where the recipe lists the classes."""
    if is_missing(value):
        raise DataError(f"{where}: the label is empty.", hint=LABEL_HINT)
    name, known = class_name(value), label_indices(labels)
    if name in known:
        return known[name]
    _one_class(value, where)
    # A number is an index only where the recipe lists the classes and none of their names is a number itself;
    # otherwise "0" among classes "1" and "2" would silently become class "1".
    name = str(int(value)) if isinstance(value, bool) else name
    if task.labels is None or not _is_whole(name) or any(map(_is_whole, labels)):
        source = "the recipe's labels" if task.labels is not None else "train"
        message = f"{where}: label '{name}' is not among those of {source}{nearest(name, labels)}."
        raise UnknownClass(message, name)
    first, index = task.first_label, int(name) - task.first_label
    if not 0 <= index < len(labels):
        listing = ", ".join(f"{number}: {label}" for number, label in enumerate(labels, first))
        raise DataError(
            f"{where}: label {name} is none of {first} to {first + len(labels) - 1} ({listing}).",
            hint=f"if this file counts its classes from {first + 1}, set task.first_label: {first + 1}; "
            "-1 marks rows without a label, as in GLUE's test splits",
        )
    return index


@lru_cache(maxsize=8)
def label_indices(labels: tuple[str, ...]) -> dict[str, int]:
    """Return the index of each class."""
    return {label: index for index, label in enumerate(labels)}


def _refuse_non_classes(names: set[str]) -> None:
    """Raise a DataError for NaN and infinity, and for scores: a classifier over 2.5 and 3.75 would be useless."""
    numbers = {name: _number(name) for name in sorted(names)}
    for name, number in numbers.items():
        if number is not None and not math.isfinite(number):
            raise DataError(
                f"train has the label {name!r}, which is no class: a missing or overflowed number.",
                hint="correct the file, or list the classes in task.labels",
            )
    fractions = [name for name, number in numbers.items() if number is not None and not number.is_integer()]
    if fractions and None not in numbers.values():
        hint = "task.kind: regression learns scores; for classes of these names give task.labels"
        raise DataError(f"the labels are numbers with fractions ({', '.join(fractions[:3])}), not classes.", hint=hint)


def _is_whole(name: str) -> bool:
    digits = name[1:] if name[:1] in ("-", "+") else name
    return digits.isascii() and digits.isdigit() and len(digits) < 19


def _number(name: str) -> float | None:
    try:
        return float(name)
    except ValueError:
        return None


TOLERANCE = 1e-3
"""How far a row's probabilities may sum from one; they are divided by their sum."""


def parse_train_row(reader: RowReader, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> Row:
    """Return a row of train with its `soft_labels`, in the order of ``labels``.

    A row without a label gets the most probable class as a placeholder and is marked as not `labelled`.
    """
    if task.soft_labels is None:
        return reader.read_row(raw, task, labels, where)
    probabilities = parse_soft_labels(raw, task, labels, reader.exclusive, where)
    labelled = has_label(raw, task)
    own = reader.read_row(raw, task, labels, where) if labelled else text_fields(raw, task, where)
    label = reader.argmax_label(probabilities)
    return {"label": label, **own, SOFT_LABELS: probabilities, LABELLED: labelled}


def has_label(raw: Mapping[str, Any], task: Task) -> bool:
    """Return whether a row has a label column; if that is empty it is an error, as in any row."""
    return any(has_column(raw, name, task) for name in label_columns(task))


def parse_soft_labels(
    raw: Mapping[str, Any], task: Task, labels: Sequence[str], exclusive: bool, where: str
) -> list[float]:
    """Return the probability of each class; those of ``exclusive`` classes sum to one."""
    columns = soft_label_columns(task)
    cells = [column_value(raw, name, task, where) for name in columns]
    values = cells if len(columns) > 1 else _class_values(cells[0], labels, f"{where}: column '{columns[0]}'")
    probabilities = [_parse_probability(value, label, where) for value, label in zip(values, labels, strict=True)]
    total = sum(probabilities)
    if exclusive and abs(total - 1.0) > TOLERANCE:
        hint = "task.kind: multi_label is for classes that do not exclude one another"
        raise DataError(f"{where}: the probabilities of all classes sum to {total:.4g}, expected 1.", hint=hint)
    return [probability / total for probability in probabilities] if exclusive else probabilities


def _class_values(cell: Any, labels: Sequence[str], location: str) -> Sequence[Any]:
    """Return the value of each class: a list or a mapping, as it is or from JSON, or numbers between white space."""
    if is_missing(cell):
        raise DataError(f"{location} is empty where a probability for each class is expected.")
    if isinstance(cell, str) and cell.lstrip().startswith(("[", "{")):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{location} holds {cell[:40]!r}, which is no JSON.") from error
    elif isinstance(cell, str):
        cell = cell.split()
    if isinstance(cell, Mapping):
        named = {class_name(name): value for name, value in cell.items()}
        if set(named) != set(labels):
            raise DataError(f"{location} names the classes {', '.join(named)} where {', '.join(labels)} are expected.")
        return [named[label] for label in labels]
    values = cell if isinstance(cell, (list, tuple)) else [cell]
    if len(values) != len(labels):
        expected = f"a probability for each of {len(labels)} classes is expected ({', '.join(labels)})"
        raise DataError(f"{location} holds {pluralize(len(values), 'number')} where {expected}.")
    return values


def _parse_probability(value: Any, label: str, where: str) -> float:
    what = f"the probability of '{label}'"
    probability = parse_number(value, what, where)
    if not 0.0 <= probability <= 1.0 + TOLERANCE:
        raise wrong_value(value, what, "a number between 0 and 1", where)
    return min(probability, 1.0)
