"""Probabilities that stand in rows of train: what somebody else, such as a large model, has answered already."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from compress.errors import DataError, nearest, pluralize
from compress.recipe.schema import Task
from compress.tasks.base import Kind, Row
from compress.tasks.parsing.columns import (
    has_column,
    is_missing,
    label_columns,
    label_name,
    pick,
    soft_columns,
    text_fields,
)

TOLERANCE = 1e-3
"""How far a row's probabilities may be from making one; they are divided by their sum."""

EXPECTED = "a probability for each class is expected"


def parse_train_row(kind: Kind, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> Row:
    """A row of train with its `soft_labels`, in the order of ``labels``.

    Where it has no label their likeliest class stands for it, and the row says that it is not `labelled`.
    """
    if task.soft_labels is None:
        return kind.read_row(raw, task, labels, where)
    found = soft_labels(raw, task, labels, kind.exclusive, where)
    labelled = has_label(raw, task)
    own = kind.read_row(raw, task, labels, where) if labelled else text_fields(raw, task, where)
    return {**({"label": kind.argmax_label(found)} | own), "soft_labels": found, "labelled": labelled}


def has_label(raw: Mapping[str, Any], task: Task) -> bool:
    """Whether a row has a place for its true answer; if that is empty it is an error, as anywhere."""
    return any(has_column(raw, name, task) for name in label_columns(task))


def soft_labels(raw: Mapping[str, Any], task: Task, labels: Sequence[str], exclusive: bool, where: str) -> list[float]:
    """The probability of each class; ``exclusive`` ones make one."""
    cells = _cells(raw, task, labels, where)
    found = [_probability(cell, label, where) for cell, label in zip(cells, labels, strict=True)]
    if not exclusive:
        return found
    total = sum(found)
    if abs(total - 1.0) > TOLERANCE:
        raise DataError(
            f"{where}: the probabilities of all classes sum to {total:.4g}, expected 1.",
            hint="task.kind: multi_label is for classes that do not exclude one another",
        )
    return [probability / total for probability in found]


def _cells(raw: Mapping[str, Any], task: Task, labels: Sequence[str], where: str) -> Sequence[Any]:
    """What stands for each class, from a column each or from one column of all."""
    columns = soft_columns(task)
    if len(columns) > 1:
        return [pick(raw, name, task, where) for name in columns]
    told = f"{where}: column '{columns[0]}'"
    values = _parsed(pick(raw, columns[0], task, where), told)
    if isinstance(values, Mapping):
        return _by_name(values, labels, told)
    if len(values) != len(labels):
        known = ", ".join(labels)
        raise DataError(
            f"{told} holds {pluralize(len(values), 'number')} where a probability for each of {len(labels)} classes is "
            f"expected ({known})."
        )
    return values


def _parsed(cell: Any, told: str) -> Sequence[Any] | Mapping[str, Any]:
    """A list or a mapping, as it is or as JSON; a text of numbers is parted at white space."""
    if isinstance(cell, (list, tuple, Mapping)):
        return cell
    if is_missing(cell):
        raise DataError(f"{told} is empty where {EXPECTED}.")
    if not isinstance(cell, str):
        return [cell]
    if not cell.lstrip().startswith(("[", "{")):
        return cell.split()
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{told} holds {cell[:40]!r}, which is no JSON, where {EXPECTED}.") from error
    assert isinstance(found, (list, dict))
    return found


def _by_name(values: Mapping[str, Any], labels: Sequence[str], told: str) -> list[Any]:
    """The values in the order of the classes, each of which must be there."""
    named = {label_name(name): value for name, value in values.items()}
    unknown = next((name for name in named if name not in labels), None)
    if unknown is not None:
        raise DataError(f"{told} names '{unknown[:40]}', which is no class{nearest(unknown, labels)}.")
    missing = [label for label in labels if label not in named]
    if missing:
        raise DataError(f"{told} has no probability of {', '.join(map(repr, missing))}.")
    return [named[label] for label in labels]


def _probability(cell: Any, label: str, where: str) -> float:
    if is_missing(cell):
        raise DataError(f"{where}: the probability of '{label}' is missing.")
    try:
        found = math.nan if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise DataError(f"{where}: the probability of '{label}' is {str(cell)[:40]!r} where a number is expected.")
    if not 0.0 <= found <= 1.0 + TOLERANCE:
        raise DataError(f"{where}: the probability of '{label}' is {found:.4g}, which is not within 0 and 1.")
    return min(found, 1.0)
