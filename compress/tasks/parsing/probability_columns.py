"""Soft labels: probabilities in rows of train that another model, such as a large one, has predicted already."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compress.batch_arrays import LABELLED, SOFT_LABELS
from compress.errors import DataError, pluralize
from compress.tasks.base import Row
from compress.tasks.parsing.columns import (
    class_name,
    column_value,
    has_column,
    is_missing,
    label_columns,
    parse_number,
    soft_label_columns,
    text_fields,
    wrong_value,
)
from compress.tasks.row_reader import RowReader

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task

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
