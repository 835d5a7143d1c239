"""Unlabelled texts: read separately from the roles, for distillation alone, so that adding some redoes no teacher."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

from compress.console import Console
from compress.data.loading.data_digest import describe_source
from compress.data.loading.row_sources import Source, open_sources, part_source, valid_rows
from compress.data.splits.prepare_splits import (
    PreparedData,
    is_selected,
    row_masks,
    rows_without_labels,
    split_shares,
)
from compress.data.splits.row_statistics import RowStatistics, RowWarnings, read_info, write_info
from compress.data.splits.row_store import RowWriter, StoredRows
from compress.data.splits.split_indices import RowMask
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
    """Write the rows of `task.data.unlabelled`, and unlabelled.json into ``work``."""
    console, labels, task = console or Console("quiet"), roles.info.labels, roles.info.split_like(task)
    statistics = RowStatistics(kind_of(task), labels)
    source, mask = _rows_and_mask(task, labels, seed, console)
    skip = partial(statistics.skip, UNLABELLED)
    with RowWriter(work, UNLABELLED) as writer:
        # Every row is checked, also those that a limit leaves out.
        for number, raw, row in valid_rows(source, task, labels, UNLABELLED, skip):
            if mask is None or is_selected(mask, number, raw.where):
                writer.add(row)
                statistics.add_input(UNLABELLED, row)
    for row in roles.rows("test"):
        statistics.add_input("test", row)
    info = UnlabelledInfo(
        count=statistics.count(UNLABELLED),
        empty_texts=statistics.empty_texts[UNLABELLED],
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


def _rows_and_mask(task: Task, labels: tuple[str, ...], seed: int, console: Console) -> tuple[Source, RowMask | None]:
    """Return a source of texts and which of its rows are used: their own files, or what `labelled` leaves of train."""
    if task.data.labelled is None:
        source = part_source(task, UNLABELLED)
        masks = row_masks(source, "train", {}, task, labels, seed)
        return source, None if masks is None else masks["train"]
    sources = open_sources(task, console)
    return sources["train"], rows_without_labels(sources["train"], split_shares(task, sources), task, labels, seed)


def unlabelled_info(folder: Path) -> UnlabelledInfo:
    """Return the description of the rows that ``prepare_unlabelled`` wrote."""
    return read_info(folder / UNLABELLED_FILE, UnlabelledInfo)


def unlabelled_rows(folder: Path) -> StoredRows:
    """Return the rows that ``prepare_unlabelled`` wrote, memory-mapped."""
    return StoredRows(folder, UNLABELLED)
