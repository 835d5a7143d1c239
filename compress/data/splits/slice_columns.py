"""The values of columns by which scores are broken down, for the rows of test and in their order.

They are read separately from the rows: models depend on texts and labels alone, so another slice column redoes no
training.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compress.console import Console
from compress.data.loading.row_sources import open_sources, valid_rows
from compress.data.splits.prepare_splits import is_selected, row_masks, split_shares
from compress.errors import DataError
from compress.recipe.field_types import Role
from compress.recipe.task_schema import Task
from compress.tasks.base import RawRow
from compress.tasks.parsing.columns import EMPTY_VALUE, class_name, column_value, is_missing

LONGEST = 60
"""Characters of a value that are used: it is a name, not a text."""


def slice_values(task: Task, labels: tuple[str, ...], seed: int, rows: int, console: Console) -> dict[str, list[str]]:
    """Return by column of ``task.slices`` the value of each row of test, as ``prepare_splits`` chose them."""
    values: dict[str, list[str]] = {column: [] for column in task.slices}
    for raw in _test_rows(task, labels, seed, console):
        for column, names in values.items():
            names.append(value_name(column_value(raw.values, column, task, raw.where), column, raw.where))
    for column, names in values.items():
        if len(names) != rows:
            raise DataError(f"'{column}' has {len(names)} values for {rows} rows of test: the data changed meanwhile.")
    return values


def value_name(value: Any, column: str, where: str) -> str:
    """Return the name of a value's slice; long text is cut, and lists and mappings are refused."""
    if is_missing(value):
        return EMPTY_VALUE
    if isinstance(value, (list, tuple, dict)):
        kind = type(value).__name__
        raise DataError(f"{where}: column '{column}' holds a {kind} where task.slices expects one value.")
    name = " ".join(class_name(value).split())
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _test_rows(task: Task, labels: tuple[str, ...], seed: int, console: Console) -> Iterator[RawRow]:
    sources = open_sources(task, console, named=True)
    role: Role = "test" if "test" in sources else "train"
    source = sources[role]
    shares = split_shares(task, sources) if role == "train" else {}
    masks = row_masks(source, role, shares, task, labels, seed)
    every = enumerate(source())
    fitting = ((number, raw) for number, raw, _ in valid_rows(source, task, labels, role))
    for number, raw in fitting if task.data.bad_rows == "skip" else every:
        if masks is None or is_selected(masks["test"], number, raw.where):
            yield raw
