"""Where a task's raw rows come from: files, hub splits or a builtin set; each can be read again from the start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from compress.console import Console
from compress.data.builtin import builtin_rows
from compress.data.contents import ROLES, find_files, role_entries
from compress.data.documents import check_corpus
from compress.data.load import file_rows, split_rows
from compress.recipe.forms import Role
from compress.recipe.schema import Data, Task
from compress.tasks import RawRow, kind_of
from compress.tasks.columns import label_columns, pick

Source = Callable[[], Iterator[RawRow]]
"""Gives all rows of a role, from the first one, each time it is called."""


def open_sources(task: Task, console: Console, named: bool | None = None) -> dict[Role, Source]:
    """How to read each role that is given; train always is.

    Lines that belong together are one row already. ``named`` asks for class names where a hub set holds class numbers:
    by default where the recipe names no classes.
    """
    return {role: _gathered(source, task) for role, source in _line_sources(task, console, named).items()}


def _gathered(source: Source, task: Task) -> Source:
    return lambda: kind_of(task).gathered(source(), task)


def _line_sources(task: Task, console: Console, named: bool | None) -> dict[Role, Source]:
    data = task.data
    if data.builtin is not None:
        name = data.builtin
        return {"train": lambda: builtin_rows(name, console)}
    if data.hub is not None:
        names = task.labels is None if named is None else named
        return {role: _splits(data, role, names) for role in ROLES if role_entries(data, role)}
    return {role: _files(paths, data, role) for role, paths in find_files(data).items()}


def check_columns(task: Task) -> None:
    """Look at the first row of every file: whether it can be read and has the columns of the task."""
    if task.data.hub is not None or task.data.builtin is not None:
        return
    files = find_files(task.data)
    sliced = "test" if "test" in files else "train"
    for role, paths in files.items():
        more = list(task.slices) if role == sliced else []
        if role == "train" and task.negatives is not None:
            more.append(task.negatives)
        for path in paths:
            first = next(file_rows(path, task.data, role))
            for column in (*task.text, *label_columns(task), *more):
                pick(first.values, column, task, first.where)
    check_corpus(task)


def raw_labels(rows: Iterable[RawRow], task: Task) -> Iterator[Any]:
    """The values of the label columns, as they stand."""
    columns = label_columns(task)
    for row in rows:
        for column in columns:
            yield pick(row.values, column, task, row.where)


def _splits(data: Data, role: Role, named: bool) -> Source:
    return lambda: chain.from_iterable(split_rows(data, split, named) for split in role_entries(data, role))


def _files(paths: Iterable[Path], data: Data, role: Role) -> Source:
    return lambda: chain.from_iterable(file_rows(path, data, role) for path in paths)
