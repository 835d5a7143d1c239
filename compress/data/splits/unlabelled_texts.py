"""Texts without an answer: read apart from the roles, for distillation alone, so adding some changes no teacher."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from compress.console import Console
from compress.data.loading.data_digest import describe_source
from compress.data.loading.parse_rows import row_parser, valid_rows
from compress.data.loading.row_sources import Source, open_unlabelled
from compress.data.splits.prepare_splits import PreparedData, is_marked, row_masks
from compress.data.splits.row_statistics import RowStatistics, RowWarnings
from compress.data.splits.row_store import RowWriter, StoredRows
from compress.errors import DataError, first_error
from compress.recipe.field_types import Part
from compress.recipe.schema import Task
from compress.tasks import kind_of

UNLABELLED: Part = "unlabelled"
"""What the file of rows is called, and the key of task.data."""
UNLABELLED_FILE = "unlabelled.json"


class UnlabelledInfo(RowWarnings):
    """What unlabelled.json tells of the rows."""

    schema_version: Literal[1] = 1
    count: int
    """Rows without an answer."""
    duplicates: int = 0
    """Test rows whose text also stands among them."""


def prepare_unlabelled(
    task: Task, roles: PreparedData, seed: int, work: Path, console: Console | None = None
) -> UnlabelledInfo:
    """Write the rows of `task.data.unlabelled`, beside those of ``roles``, and unlabelled.json into ``work``."""
    source = open_unlabelled(task)
    if source is None:
        raise DataError("task.data.unlabelled names nothing to read.")
    console, tally = console or Console("quiet"), RowStatistics(kind_of(task), roles.info.labels)
    _write(source, task, roles.info.labels, seed, work, tally)
    info = UnlabelledInfo(
        count=tally.count(UNLABELLED),
        empty_texts=tally.empty_texts[UNLABELLED],
        skipped=tally.skipped[UNLABELLED],
        first_skipped=tally.first_skipped.get(UNLABELLED),
        duplicates=_duplicates(roles, tally),
    )
    if not info.count:
        why = tally.left_out(UNLABELLED) or "there is nothing in it."
        raise DataError(f"{describe_source(task.data, UNLABELLED)} has no rows left: {why}")
    _tell(info, roles.info.counts["test"], console)
    (work / UNLABELLED_FILE).write_text(info.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return info


def unlabelled_info(folder: Path) -> UnlabelledInfo:
    """What ``prepare_unlabelled`` tells of its rows."""
    path = folder / UNLABELLED_FILE
    try:
        return UnlabelledInfo.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"{folder} holds no unlabelled rows: {error.strerror}.") from error
    except ValidationError as error:
        raise DataError(f"{path} cannot be read: {first_error(error)}") from error


def unlabelled_rows(folder: Path) -> StoredRows:
    """The rows that ``prepare_unlabelled`` wrote, memory-mapped."""
    return StoredRows(folder, UNLABELLED)


def _write(source: Source, task: Task, labels: tuple[str, ...], seed: int, work: Path, tally: RowStatistics) -> None:
    """Write the rows, as many as a limit leaves; every row is checked, also those that it leaves out."""
    marks = row_masks(source, "train", {}, task.data.limit, seed)
    read, skips = row_parser(task, labels, UNLABELLED), task.data.bad_rows == "skip"
    with RowWriter(work, UNLABELLED) as writer:
        for number, raw, row in valid_rows(source, read, skips, partial(tally.skip, UNLABELLED)):
            if marks is None or is_marked(marks["train"], number, raw.where):
                writer.add(row)
                tally.add_asked(UNLABELLED, row)


def _duplicates(roles: PreparedData, tally: RowStatistics) -> int:
    """Test rows that ask what an unlabelled one asks too."""
    for row in roles.rows("test"):
        tally.add_asked("test", row)
    return tally.shared("test", UNLABELLED)


def _tell(info: UnlabelledInfo, tested: int, console: Console) -> None:
    console.note(f"rows without an answer: {info.count:,}")
    if info.duplicates:
        console.warn(f"{info.duplicates:,} of {tested:,} test rows have a text that also stands in unlabelled.")
    info.warn(console)
