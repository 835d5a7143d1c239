"""Unlabelled texts: read separately from the roles, for distillation alone, so that adding some redoes no teacher."""

from pathlib import Path
from typing import Literal

import numpy as np

from compress.console import Console
from compress.data.loading.data_digest import describe_source
from compress.data.loading.row_sources import part_source
from compress.data.splits.prepare_splits import PreparedData
from compress.data.splits.row_statistics import RowStatistics, RowWarnings, read_info, write_info
from compress.data.splits.row_store import ROWS, RowWriter, StoredRows, write_subset
from compress.data.splits.split_indices import assign_roles
from compress.data.splits.store_source import store_source
from compress.errors import DataError
from compress.recipe.field_types import Part
from compress.recipe.task_schema import Task
from compress.tasks import kind_of

UNLABELLED: Part = "unlabelled"
"""The name of the file of rows, and the key of task.data."""
UNLABELLED_FILE = "unlabelled.json"


class UnlabelledInfo(RowWarnings):
    """The contents of unlabelled.json, which describes the rows."""

    schema_version: Literal[1] = 1
    count: int
    """Rows without a label."""
    duplicates: int = 0
    """Test rows whose text is also among them."""


def prepare_unlabelled(
    task: Task, roles: PreparedData, seed: int, work: Path, console: Console | None = None
) -> UnlabelledInfo:
    """Write the rows of `task.data.unlabelled`, or those that `labelled` leaves of train, and unlabelled.json."""
    console, kind = console or Console("quiet"), kind_of(task)
    statistics = RowStatistics(kind, roles.info.labels)
    with RowWriter(work, ROWS) as store:
        if task.data.labelled is None:
            rows = store_source(part_source(task, UNLABELLED), UNLABELLED, task, store, statistics)
            chosen = assign_roles(rows.total, seed, {}, task.data.limit, "train")["train"][rows.numbers]
        else:
            for row in roles.left_by_labelled():
                statistics.add_input(store.add(kind.from_input(kind.to_input(row), roles.info.task_info)))
            chosen = np.ones(len(store), np.bool_)
    indices = np.flatnonzero(chosen)
    write_subset(work, UNLABELLED, indices)
    statistics.assign(UNLABELLED, indices)
    empty_texts = statistics.empty_texts()
    for row in roles.rows("test"):
        statistics.add_input(row)
    statistics.assign("test", np.arange(len(chosen), len(statistics)))
    info = UnlabelledInfo(
        count=statistics.count(UNLABELLED),
        empty_texts=empty_texts,
        skipped=statistics.skipped[UNLABELLED],
        first_skipped=statistics.first_skipped.get(UNLABELLED),
        duplicates=statistics.shared("test", UNLABELLED),
    )
    if not info.count and task.data.labelled is not None:
        raise DataError(
            f"task.data.labelled is {task.data.labelled:,}, and train has {roles.info.counts['train']:,} rows, so that "
            "no texts are left without their label.",
            hint="leave labelled out, or give a smaller number",
        )
    if not info.count:
        why = statistics.describe_skipped(UNLABELLED) or "there is nothing in it."
        raise DataError(f"{describe_source(task.data, UNLABELLED)} has no rows left: {why}")
    console.note(f"unlabelled rows: {info.count:,}")
    if info.duplicates:
        tested = roles.info.counts["test"]
        console.warn(f"{info.duplicates:,} of {tested:,} test rows have a text that is also in unlabelled.")
    info.warn(console)
    write_info(work / UNLABELLED_FILE, info)
    return info


def unlabelled_info(folder: Path) -> UnlabelledInfo:
    """Return the description of the rows that ``prepare_unlabelled`` wrote."""
    return read_info(folder / UNLABELLED_FILE, UnlabelledInfo)


def unlabelled_rows(folder: Path) -> StoredRows:
    """Return the rows that ``prepare_unlabelled`` wrote, memory-mapped."""
    return StoredRows(folder, UNLABELLED)
