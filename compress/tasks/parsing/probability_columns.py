"""Soft labels: probabilities in rows of train that another model, such as a large one, has predicted already."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from compress.batch_arrays import LABELLED, SOFT_LABELS
from compress.errors import DataError, nearest, pluralize
from compress.recipe.schema import Task
from compress.tasks.base import Row, RowReader
from compress.tasks.parsing.columns import (
    class_name,
    column_value,
    has_column,
    is_missing,
    label_columns,
    soft_label_columns,
    text_fields,
)

TOLERANCE = 1e-3
"""How far a row's probabilities may sum from one; they are divided by their sum."""

EXPECTED = "a probability for each class is expected"


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
    cells = _class_cells(raw, task, labels, where)
    probabilities = [_parse_probability(cell, label, where) for cell, label in zip(cells, labels, strict=True)]
    if not exclusive:
        return probabilities
    total = sum(probabilities)
    if abs(total - 1.0) > TOLERANCE:
        raise DataError(
            f"{where}: the probabilities of all classes sum to {total:.4g}, expected 1.",
            hint="task.kind: multi_label is for classes that do not exclude one another",
        )
    return [probability / total for probability in probabilities]


def _class_cells(raw: Mapping[str, Any], task: Task, labels: Sequence[str], where: str) -> Sequence[Any]:
    """Return the value of each class, from one column per class or from one column of all."""
    columns = soft_label_columns(task)
    if len(columns) > 1:
        return [column_value(raw, name, task, where) for name in columns]
    location = f"{where}: column '{columns[0]}'"
    values = _parse_cell(column_value(raw, columns[0], task, where), location)
    if isinstance(values, Mapping):
        return _in_label_order(values, labels, location)
    if len(values) != len(labels):
        count = pluralize(len(values), "number")
        expected = f"a probability for each of {len(labels)} classes is expected ({', '.join(labels)})"
        raise DataError(f"{location} holds {count} where {expected}.")
    return values


def _parse_cell(cell: Any, location: str) -> Sequence[Any] | Mapping[str, Any]:
    """Return a list or a mapping, as it is or from JSON; a text of numbers is split at white space."""
    if isinstance(cell, (list, tuple, Mapping)):
        return cell
    if is_missing(cell):
        raise DataError(f"{location} is empty where {EXPECTED}.")
    if not isinstance(cell, str):
        return [cell]
    if not cell.lstrip().startswith(("[", "{")):
        return cell.split()
    try:
        values = json.loads(cell)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{location} holds {cell[:40]!r}, which is no JSON, where {EXPECTED}.") from error
    assert isinstance(values, (list, dict))
    return values


def _in_label_order(values: Mapping[str, Any], labels: Sequence[str], location: str) -> list[Any]:
    """Return the values in the order of the classes, all of which must be present."""
    named = {class_name(name): value for name, value in values.items()}
    unknown = next((name for name in named if name not in labels), None)
    if unknown is not None:
        raise DataError(f"{location} names '{unknown[:40]}', which is no class{nearest(unknown, labels)}.")
    missing = [label for label in labels if label not in named]
    if missing:
        raise DataError(f"{location} has no probability of {', '.join(map(repr, missing))}.")
    return [named[label] for label in labels]


def _parse_probability(cell: Any, label: str, where: str) -> float:
    if is_missing(cell):
        raise DataError(f"{where}: the probability of '{label}' is missing.")
    try:
        probability = math.nan if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError, OverflowError):
        probability = math.nan
    if not math.isfinite(probability):
        raise DataError(f"{where}: the probability of '{label}' is {str(cell)[:40]!r} where a number is expected.")
    if not 0.0 <= probability <= 1.0 + TOLERANCE:
        raise DataError(f"{where}: the probability of '{label}' is {probability:.4g}, which is not between 0 and 1.")
    return min(probability, 1.0)
