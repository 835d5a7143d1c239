"""Unlabelled texts: read separately from the roles, for distillation alone, so that adding some redoes no teacher."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from compress.console import Console
from compress.data.loading.data_digest import describe_source
from compress.data.loading.parse_rows import row_parser, valid_rows
from compress.data.loading.row_sources import Source, open_unlabelled
from compress.data.splits.prepare_splits import PreparedData, is_selected, row_masks
from compress.data.splits.row_statistics import RowStatistics, RowWarnings
from compress.data.splits.row_store import RowWriter, StoredRows
from compress.errors import DataError, first_error
from compress.recipe.field_types import Part
from compress.recipe.schema import Task
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
    source = open_unlabelled(task)
    if source is None:
        raise DataError("task.data.unlabelled names nothing to read.")
    console, statistics = console or Console("quiet"), RowStatistics(kind_of(task), roles.info.labels)
    _write(source, task, roles.info.labels, seed, work, statistics)
    info = UnlabelledInfo(
        count=statistics.count(UNLABELLED),
        empty_texts=statistics.empty_texts[UNLABELLED],
        skipped=statistics.skipped[UNLABELLED],
        first_skipped=statistics.first_skipped.get(UNLABELLED),
        duplicates=_duplicates(roles, statistics),
    )
    if not info.count:
        why = statistics.describe_skipped(UNLABELLED) or "there is nothing in it."
        raise DataError(f"{describe_source(task.data, UNLABELLED)} has no rows left: {why}")
    _print_summary(info, roles.info.counts["test"], console)
    (work / UNLABELLED_FILE).write_text(info.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return info


def unlabelled_info(folder: Path) -> UnlabelledInfo:
    """Return the description of the rows that ``prepare_unlabelled`` wrote."""
    path = folder / UNLABELLED_FILE
    try:
        return UnlabelledInfo.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"{folder} holds no unlabelled rows: {error.strerror}.") from error
    except ValidationError as error:
        raise DataError(f"{path} cannot be read: {first_error(error)}") from error


def unlabelled_rows(folder: Path) -> StoredRows:
    """Return the rows that ``prepare_unlabelled`` wrote, memory-mapped."""
    return StoredRows(folder, UNLABELLED)


def _write(
    source: Source, task: Task, labels: tuple[str, ...], seed: int, work: Path, statistics: RowStatistics
) -> None:
    """Write the rows that a limit leaves; every row is checked, also those that it leaves out."""
    masks = row_masks(source, "train", {}, task.data.limit, seed)
    parse, skips = row_parser(task, labels, UNLABELLED), task.data.bad_rows == "skip"
    with RowWriter(work, UNLABELLED) as writer:
        for number, raw, row in valid_rows(source, parse, skips, partial(statistics.skip, UNLABELLED)):
            if masks is None or is_selected(masks["train"], number, raw.where):
                writer.add(row)
                statistics.add_input(UNLABELLED, row)


def _duplicates(roles: PreparedData, statistics: RowStatistics) -> int:
    """Return the number of test rows with the input of an unlabelled one."""
    for row in roles.rows("test"):
        statistics.add_input("test", row)
    return statistics.shared("test", UNLABELLED)


def _print_summary(info: UnlabelledInfo, tested: int, console: Console) -> None:
    console.note(f"unlabelled rows: {info.count:,}")
    if info.duplicates:
        console.warn(f"{info.duplicates:,} of {tested:,} test rows have a text that is also in unlabelled.")
    info.warn(console)
