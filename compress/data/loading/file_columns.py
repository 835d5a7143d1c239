"""Whether the files of a recipe have the columns of its task: their first rows are looked at before anything runs."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from compress.data.loading.data_digest import PARTS, ROLES, part_files, source_entries
from compress.data.loading.part_rows import columns_read
from compress.data.loading.raw_rows import LINE, file_rows, format_of
from compress.data.loading.row_sources import document_text, row_parser
from compress.errors import CompressError, DataError, Problem
from compress.recipe.field_types import Part
from compress.recipe.task_schema import Task
from compress.tasks.base import RawRow
from compress.tasks.parsing.columns import MissingColumn, column_value, label_columns, soft_label_columns
from compress.tasks.parsing.labels import has_label

LOOKED_AT = 1000
"""Rows of a file of JSON objects whose keys are its columns."""


def missing_columns(task: Task) -> Iterator[MissingColumn]:
    """Yield the columns of the task that the first row of a file does not have; a row that cannot be read raises.

    Of JSON objects the first ones together.
    """
    if task.data.hub is not None or task.data.builtin is not None:
        return
    for part in PARTS:
        for path in part_files(task.data, part):
            rows = file_rows(path, task.data, part, columns_read(task, part))
            first = next(raw for raw in rows if raw.fault is None)
            if (task.data.format or format_of(path)) in ("jsonl", "json"):  # an object may leave keys out
                first = _with_keys_of_others(first, rows)
            checks: list[Callable[[], object]]
            if part == "corpus":
                checks = [partial(document_text, first, task)]
            elif LINE in first.values:
                checks = [partial(row_parser(task, task.labels or (), "unlabelled"), first)]
            else:
                columns = _columns_of(part, first, task)
                checks = [partial(column_value, first.values, each, task, first.where) for each in columns]
            for check in checks:
                try:
                    check()
                except MissingColumn as missing:
                    yield missing


def _with_keys_of_others(first: RawRow, others: Iterator[RawRow]) -> RawRow:
    """Return the first row with the keys of those after it too."""
    values = dict[str, Any]()
    with suppress(DataError):  # what is wrong with another row is said where it is read
        for other in islice(others, LOOKED_AT):
            values = {**other.values, **values}
    return first._replace(values={**values, **first.values})


def _columns_of(part: Part, first: RawRow, task: Task) -> list[str]:
    """Return the columns that the files of a part have to have, by their first row."""
    columns = [*task.text, *(task.slices if part == ("test" if task.data.test else "train") else ())]
    if part == "train":
        columns += [*filter(None, (task.negatives, task.data.group)), *soft_label_columns(task)]
    if part == "train" and task.soft_labels and not has_label(first.values, task):
        check_true_labels(task, first.where)
    elif part != "unlabelled":
        columns += label_columns(task)
    return columns


def check_columns(task: Task) -> None:
    """Check that the first row of every file can be read and has the columns of the task."""
    for missing in missing_columns(task):
        raise missing


def column_problems(task: Task) -> Iterator[Problem]:
    """Yield each column that the task names and a file does not have, at the key that names it."""
    try:
        for missing in missing_columns(task):
            yield Problem(("task", *missing.key.split(".")), missing.full_message)
    except CompressError:
        return  # what else is wrong with a file is no mistake of the recipe: the plan refuses it


def check_true_labels(task: Task, where: str) -> None:
    """Refuse to split rows without a true label off train: select and test are scored by it."""
    missing = [role for role in ROLES[1:] if not source_entries(task.data, role)]
    if missing:
        label, roles = ", ".join(label_columns(task)), " and ".join(missing)
        raise DataError(
            f"{where} has soft labels and no label ({label}), and {roles} would be split off train: scores need true "
            "labels.",
            hint=f"task.data.{missing[0]} names a file of labelled rows",
        )
