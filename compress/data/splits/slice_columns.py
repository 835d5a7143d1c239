"""The values of columns by which scores are broken down, for the rows of test and in their order.

They are read separately from the rows: models depend on texts and labels alone, so another slice column redoes no
training.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.console import Console
from compress.data.loading.row_sources import open_sources
from compress.errors import DataError
from compress.recipe.task_schema import Task
from compress.tasks.base import RawRow
from compress.tasks.parsing.columns import EMPTY_VALUE, class_name, column_value, is_missing

LONGEST = 60
"""Characters of a value that are used: it is a name, not a text."""


def slice_values(task: Task, numbers: NDArray[np.int64], console: Console) -> dict[str, list[str]]:
    """Return by column of ``task.slices`` the value of each row of test; ``numbers`` are the rows' in their source."""
    values: dict[str, list[str]] = {column: [] for column in task.slices}
    for raw in _numbered_rows(task, numbers, console):
        for column, names in values.items():
            names.append(value_name(column_value(raw.values, column, task, raw.where), column, raw.where))
    for column, names in values.items():
        if len(names) != len(numbers):
            counts = f"{len(names)} values for {len(numbers)} rows of test"
            raise DataError(f"'{column}' has {counts}: the data changed meanwhile.")
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


def _numbered_rows(task: Task, numbers: NDArray[np.int64], console: Console) -> Iterator[RawRow]:
    sources = open_sources(task, console, named=True)
    rows, last = sources["test" if "test" in sources else "train"](), -1
    for number in numbers.tolist():
        yield from islice(rows, number - last - 1, number - last)
        last = number
