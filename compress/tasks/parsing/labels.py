"""Classes from raw label values: which classes there are, and the class of a row."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from compress.errors import DataError, nearest
from compress.tasks.parsing.columns import LABEL_HINT, class_name, is_missing

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task


class UnknownClass(DataError):
    """A row's label is none of the classes that the task has."""

    def __init__(self, message: str, label: str) -> None:
        super().__init__(message)
        self.label = label


def collect_classes(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the distinct classes in order: by number where all are whole numbers, else by name."""
    names: set[str] = set()
    for value in values:
        if isinstance(value, str) and value in names:
            continue
        if isinstance(value, (list, tuple, dict)):
            hint = "task.kind: multi_label reads lists of classes"
            raise DataError(f"a label is a list or mapping ({str(value)[:60]}) where one class is expected.", hint=hint)
        if not is_missing(value):
            names.add(class_name(value))
    _refuse_non_classes(names)
    return tuple(sorted(names, key=int) if all(map(_is_whole, names)) else sorted(names))


def class_index(value: Any, task: Task, labels: tuple[str, ...], where: str) -> int:
    """Return the class that ``value`` names, or numbers where the recipe lists the classes."""
    if is_missing(value):
        raise DataError(f"{where}: the label is empty.", hint=LABEL_HINT)
    name, known = class_name(value), label_indices(labels)
    if name in known:
        return known[name]
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
