"""Sources of a task's raw rows: files, hub splits or a builtin set; each can be read again from the start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from compress.console import Console
from compress.data.loading.data_digest import ROLES, extra_files, find_files, source_entries
from compress.data.loading.quickstart_dataset import builtin_rows
from compress.data.loading.raw_rows import file_rows, split_rows
from compress.data.splits.corpus import check_corpus
from compress.errors import DataError
from compress.recipe.field_types import Part, Role
from compress.recipe.schema import Data, Task
from compress.tasks import RawRow, kind_of
from compress.tasks.parsing.columns import column_value, label_columns, soft_label_columns
from compress.tasks.parsing.probability_columns import has_label

Source = Callable[[], Iterator[RawRow]]
"""Returns all rows of a role, from the first one, each time it is called."""


def open_sources(task: Task, console: Console, named: bool | None = None) -> dict[Role, Source]:
    """Return a source for each role that is given; train always is.

    Lines that belong together are one row already. With ``named``, class numbers of a hub set are replaced by names: by
    default where the recipe names no classes.
    """
    return {role: _grouped(source, task) for role, source in _line_sources(task, console, named).items()}


def open_unlabelled(task: Task) -> Source | None:
    """Return a source of the unlabelled texts, if any are given."""
    data = task.data
    if not source_entries(data, "unlabelled"):
        return None
    if data.hub is not None:
        source = _splits(data, "unlabelled", named=False)
    else:
        source = _files(extra_files(data, "unlabelled"), data, "unlabelled")
    return _grouped(source, task, labelled=False)


def _grouped(source: Source, task: Task, labelled: bool = True) -> Source:
    return lambda: kind_of(task).group_lines(source(), task, labelled)


def _line_sources(task: Task, console: Console, named: bool | None) -> dict[Role, Source]:
    data = task.data
    if data.builtin is not None:
        name = data.builtin
        return {"train": lambda: builtin_rows(name, console)}
    if data.hub is not None:
        names = task.labels is None if named is None else named
        return {role: _splits(data, role, names) for role in ROLES if source_entries(data, role)}
    return {role: _files(paths, data, role) for role, paths in find_files(data).items()}


def check_columns(task: Task) -> None:
    """Check that the first row of every file can be read and has the columns of the task."""
    if task.data.hub is not None or task.data.builtin is not None:
        return
    files = find_files(task.data)
    sliced = "test" if "test" in files else "train"
    for role, paths in files.items():
        more = list(task.slices) if role == sliced else []
        if role == "train":
            more += [*(() if task.negatives is None else (task.negatives,)), *soft_label_columns(task)]
        for path in paths:
            first = next(file_rows(path, task.data, role))
            labels = label_columns(task)
            if role == "train" and soft_label_columns(task) and not has_label(first.values, task):
                check_true_labels(task, first.where)
                labels = ()
            for column in (*task.text, *labels, *more):
                column_value(first.values, column, task, first.where)
    for path in extra_files(task.data, "unlabelled"):
        first = next(file_rows(path, task.data, "unlabelled"))
        for column in task.text:
            column_value(first.values, column, task, first.where)
    check_corpus(task)


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


def raw_labels(rows: Iterable[RawRow], task: Task) -> Iterator[Any]:
    """Yield the raw values of the label columns."""
    columns = label_columns(task)
    for row in rows:
        for column in columns:
            yield column_value(row.values, column, task, row.where)


def _splits(data: Data, part: Part, named: bool) -> Source:
    return lambda: chain.from_iterable(split_rows(data, split, named) for split in source_entries(data, part))


def _files(paths: Iterable[Path], data: Data, part: Part) -> Source:
    return lambda: chain.from_iterable(file_rows(path, data, part) for path in paths)
