"""From raw data to the three roles: checked canonical rows on disk, read by every later step.

**train** learns, **select** decides (checkpoints, gate, winner), **test** is scored once at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from compress.batch_arrays import EXTRA_NAMES
from compress.console import Console
from compress.data.hard_negatives import add_hard_negatives
from compress.data.loading.data_digest import ROLES, describe_source
from compress.data.loading.parse_rows import row_parser, valid_rows
from compress.data.loading.row_sources import Source, check_true_labels, open_sources, raw_labels
from compress.data.splits.corpus import RoleWriter, corpus_documents, documents_name
from compress.data.splits.row_statistics import RowStatistics, RowWarnings
from compress.data.splits.row_store import StoredRows
from compress.data.splits.split_indices import RowMask, assign_roles
from compress.errors import DataError, first_error
from compress.model_info import TaskInfo
from compress.recipe.field_types import Role
from compress.recipe.schema import Task
from compress.tasks import Row, kind_of, task_info
from compress.tasks.validate_task import task_problems

DATA_FILE = "data.json"


class DataInfo(RowWarnings):
    """What data.json tells of the prepared rows."""

    schema_version: Literal[1] = 1
    task_info: TaskInfo
    counts: Mapping[Role, int]
    """Rows of each role."""
    per_class: Mapping[Role, Mapping[str, int]] = {}
    """Rows of each class (multi-label: rows that have it); empty for regression."""
    held_back: tuple[Role, ...] = ()
    """PreparedData that were held back from train because nothing was given for them."""
    duplicates: int = 0
    """Test rows whose text also stands in train."""
    select_duplicates: int = 0
    """Select rows whose text also stands in train."""
    documents: Mapping[Role, int] = {}
    """Documents among which the answers to a role's rows are searched."""
    guessed: int = 0
    """Rows of train without a label, whose soft labels' likeliest class stands for it."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes in order."""
        return self.task_info.labels


class PreparedData:
    """The prepared rows of a folder."""

    def __init__(self, folder: Path, info: DataInfo) -> None:
        self.folder = folder
        self.info = info
        self._rows: dict[Role, StoredRows] = {}

    def rows(self, role: Role) -> StoredRows:
        """The rows of a role, memory-mapped."""
        if role not in self._rows:
            self._rows[role] = StoredRows(self.folder, role)
        return self._rows[role]

    def documents(self, role: Role) -> Sequence[Row]:
        """What is searched for the answers to a role's rows; nothing for kinds that do not search."""
        return StoredRows(self.folder, documents_name(role)) if kind_of(self.info.task_info).searches else ()


def load_prepared(folder: Path) -> PreparedData:
    """Open what ``prepare`` wrote."""
    path = folder / DATA_FILE
    try:
        info = DataInfo.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"{folder} holds no prepared data: {error.strerror}.") from error
    except ValidationError as error:
        raise DataError(f"{path} cannot be read: {first_error(error)}") from error
    return PreparedData(folder, info)


def prepare_splits(task: Task, seed: int, work: Path, console: Console | None = None) -> DataInfo:
    """Read and check the data of ``task``, and write each role's rows and data.json into ``work``.

    Rows are streamed. Files are read a second time only where something must be known first: the classes where the
    recipe does not name them, the number of rows where some are held back or left out.
    """
    problems = task_problems(task)
    if problems:
        raise DataError("\n  ".join(["the task cannot be prepared:", *map(str, problems)]))
    console = console or Console("quiet")
    kind, sources = kind_of(task), open_sources(task, console)
    labels = kind.labels(raw_labels(sources["train"](), task), task)
    held = split_shares(task, sources)
    tally = RowStatistics(kind, labels)
    for role, source in sources.items():
        marks = row_masks(source, role, held if role == "train" else {}, task.data.limit, seed)
        _write(source, role, marks, task, labels, work, tally)
    _check(tally, held, task, console)
    if task.hard_negatives:
        found = add_hard_negatives(work, "train", task.hard_negatives)
        console.note(f"hard negatives: a row of train has {found:.1f} on average; {task.hard_negatives} are asked for")
    info = DataInfo(
        task_info=task_info(task, labels),
        counts={role: tally.count(role) for role in ROLES},
        per_class={role: tally.per_class(role) for role in ROLES} if labels else {},
        held_back=tuple(held),
        duplicates=tally.shared("test", "train"),
        select_duplicates=tally.shared("select", "train"),
        empty_texts=tally.empty_texts.total(),
        guessed=tally.guessed,
        documents={role: len(StoredRows(work, documents_name(role))) for role in ROLES[1:]} if kind.searches else {},
        skipped=tally.skipped.total(),
        first_skipped=next(iter(tally.first_skipped.values()), None),
    )
    _tell(info, console)
    (work / DATA_FILE).write_text(info.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return info


def split_shares(task: Task, given: Collection[Role]) -> dict[Role, float]:
    """The shares of train that are held back as the roles for which nothing is ``given``."""
    shares: dict[Role, float] = {"select": task.data.select_share, "test": task.data.test_share}
    return {role: share for role, share in shares.items() if role not in given}


def row_masks(
    source: Source, role: Role, held: Mapping[Role, float], limit: int | None, seed: int
) -> Mapping[Role, RowMask] | None:
    """Which rows of a source go to which role; None where all stay in their own."""
    if not held and limit is None:
        return None
    return assign_roles(sum(1 for _ in source()), seed, held, limit, rest=role)


def _write(
    source: Source,
    role: Role,
    marks: Mapping[Role, RowMask] | None,
    task: Task,
    labels: tuple[str, ...],
    work: Path,
    tally: RowStatistics,
) -> None:
    """Write a source's rows to the roles that get them; every row is checked, also those that a limit leaves out."""
    with ExitStack() as files:
        targets = [role] if marks is None else list(marks)
        writers = {target: files.enter_context(RoleWriter(work, target, kind_of(task))) for target in targets}
        read, skips = row_parser(task, labels, role), task.data.bad_rows == "skip"
        for number, raw, row in valid_rows(source, read, skips, partial(tally.skip, role)):
            if row.get("labelled") is False:
                check_true_labels(task, raw.where)
            for target, writer in writers.items():
                if marks is None or is_marked(marks[target], number, raw.where):
                    for kept in writer.add(row if target == "train" else drop_train_extras(row)):
                        tally.add(target, kept)
        _add_corpus(writers, task)


def _add_corpus(writers: Mapping[Role, RoleWriter], task: Task) -> None:
    """Add the documents of the corpus to those that are searched on test."""
    test = writers.get("test")
    if test is not None and test.documents is not None:
        for words in corpus_documents(task):
            test.documents.number(words)


def drop_train_extras(row: Row) -> Row:
    """A row as it is scored: by its true answer alone."""
    return {name: value for name, value in row.items() if name not in EXTRA_NAMES}


def is_marked(marks: RowMask, number: int, where: str) -> bool:
    """Whether a row is among those marked; a row behind the last one counted is an error."""
    if number >= len(marks):
        raise DataError(f"{where} was not there a moment ago: the file changed while it was read.")
    return bool(marks[number])


def _check(tally: RowStatistics, held: Collection[Role], task: Task, console: Console) -> None:
    """Refuse roles that cannot do their work."""
    for role in ROLES:
        if not tally.count(role):
            left_out = tally.left_out("train" if role in held else role)
            why = left_out or "there are too few to hold some back from train."
            raise DataError(f"{describe_source(task.data, role)} has no rows left: {why}")
    if not tally.varied("train"):
        raise DataError(f"{describe_source(task.data, 'train')}: all labels are the same; at least two are needed.")
    learnt = tally.per_class("train")
    for role in ROLES[1:]:
        unseen = [label for label, rows in tally.per_class(role).items() if rows and not learnt[label]]
        if not unseen:
            continue
        message = f"{describe_source(task.data, role)} has rows of {', '.join(map(repr, unseen))}, and train has none"
        # Chance can take a rare class out of train; a file that never had it is another matter.
        if task.data.limit is None and role not in held and task.soft_labels is None:
            raise DataError(f"{message}: a model cannot answer what it never saw.")
        console.warn(f"{message}.")


def _tell(info: DataInfo, console: Console) -> None:
    counted = ", ".join(f"{role} {info.counts[role]:,}" for role in ROLES)
    back = f"; {' and '.join(info.held_back)} held back from train" if info.held_back else ""
    console.note(f"rows: {counted}{back}")
    if info.guessed:
        rows = "row has" if info.guessed == 1 else "rows have"
        console.note(f"{info.guessed:,} {rows} no label in train: the likeliest class of the soft labels stands for it")
    if info.documents:
        searched = ", ".join(f"{role} {count:,}" for role, count in info.documents.items())
        console.note(f"documents that are searched: {searched}")
    shared: dict[Role, int] = {"test": info.duplicates, "select": info.select_duplicates}
    for role, count in shared.items():
        if count:
            console.warn(f"{count:,} of {info.counts[role]:,} {role} rows have a text that also stands in train.")
    info.warn(console)
