"""Classes from raw label values: which classes there are, and the class of a row."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from compress.errors import DataError, nearest
from compress.recipe.schema import Task
from compress.tasks.parsing.columns import class_name, is_missing

SHOWN_FRACTIONS = 3
"""How many example values a message shows."""

NOT_A_CLASS = ("nan", "inf", "-inf", "+inf", "infinity", "-infinity", "+infinity")
"""What programs write for missing or overflowed numbers; never a class unless the recipe names it."""


def collect_classes(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the distinct classes in order: by number where all are whole numbers, else by name."""
    names: set[str] = set()
    for value in values:
        if isinstance(value, (list, tuple, dict)):
            raise DataError(
                f"a label is a list or mapping ({str(value)[:60]}) where one class is expected.",
                hint="task.kind: multi_label reads lists of classes",
            )
        if not is_missing(value):
            names.add(class_name(value))
    _refuse_non_classes(names)
    if all(map(_is_whole, names)):
        return tuple(sorted(names, key=int))
    return tuple(sorted(names))


def class_index(value: Any, task: Task, labels: tuple[str, ...], where: str) -> int:
    """Return the class that ``value`` names, or numbers where the recipe lists the classes."""
    if is_missing(value):
        raise DataError(f"{where}: the label is empty.", hint="every row of train, select and test needs a label")
    name = class_name(value)
    known = _indices(labels)
    if name in known:
        return known[name]
    # A number is an index only where the recipe lists the classes and none of their names is a number itself;
    # otherwise "0" among classes "1" and "2" would silently become class "1".
    if isinstance(value, bool):
        name = str(int(value))
    if task.labels is not None and _is_whole(name) and not any(map(_is_whole, labels)):
        index = int(name) - task.first_label
        if 0 <= index < len(labels):
            return index
        raise _out_of_range(name, task, labels, where)
    source = "the recipe's labels" if task.labels is not None else "train"
    raise DataError(f"{where}: label '{name}' is not among those of {source}{nearest(name, labels)}.")


def _out_of_range(name: str, task: Task, labels: tuple[str, ...], where: str) -> DataError:
    last = task.first_label + len(labels) - 1
    hint = None
    if name == "-1":
        hint = "-1 marks rows without a label, as in GLUE's test splits: use a labelled split or file"
    elif int(name) == last + 1:
        first = task.first_label + 1
        hint = f"if this file counts its classes from {first}, set task.first_label: {first}"
    listing = ", ".join(f"{number}: {label}" for number, label in enumerate(labels, task.first_label))
    return DataError(f"{where}: label {name} is none of {task.first_label} to {last} ({listing}).", hint=hint)


def _refuse_non_classes(names: set[str]) -> None:
    """Raise a DataError for NaN and infinity, and for scores: a classifier over 2.5 and 3.75 would be useless."""
    invalid = sorted(name for name in names if name.strip().lower() in NOT_A_CLASS)
    if invalid:
        raise DataError(
            f"train has the label {invalid[0]!r}, which is no class: a missing or overflowed number.",
            hint="correct the file, or list the classes in task.labels",
        )
    fractions = sorted(name for name in names if _is_fraction(name))
    if fractions and all(_is_whole(name) or _is_number(name) for name in names):
        raise DataError(
            f"the labels are numbers with fractions ({', '.join(fractions[:SHOWN_FRACTIONS])}), not classes.",
            hint="task.kind: regression learns scores; for classes of these names give task.labels",
        )


def _is_whole(name: str) -> bool:
    digits = name[1:] if name[:1] in ("-", "+") else name
    return digits.isascii() and digits.isdigit() and len(digits) < 19


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False


def _is_fraction(name: str) -> bool:
    return not _is_whole(name) and _is_number(name) and not float(name).is_integer()


@lru_cache(maxsize=8)
def _indices(labels: tuple[str, ...]) -> dict[str, int]:
    return {label: index for index, label in enumerate(labels)}
