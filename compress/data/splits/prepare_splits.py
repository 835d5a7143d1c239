"""From raw data to the three roles: checked canonical rows on disk, read by every later step.

**train** is trained on, **select** decides (checkpoints, gate, winner), **test** is scored once at the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Literal

from compress.batch_arrays import LABELLED
from compress.console import Console
from compress.data.hard_negatives import add_hard_negatives
from compress.data.loading.data_digest import ROLES
from compress.data.loading.row_sources import Source, check_true_labels, corpus_documents, open_sources, valid_rows
from compress.data.splits.check_roles import check_roles, refuse_identifiers, unseen_classes
from compress.data.splits.corpus import RoleWriter, documents_name
from compress.data.splits.row_statistics import RowStatistics, RowWarnings, read_info, write_info
from compress.data.splits.row_store import StoredRows
from compress.data.splits.split_indices import RowMask, assign_roles, automatic_share
from compress.errors import DataError, pluralize
from compress.model_info import TaskInfo
from compress.recipe.field_types import Role
from compress.recipe.task_schema import Task
from compress.tasks import Row, kind_of, task_info
from compress.tasks.label_problems import label_problems
from compress.tasks.parsing.columns import column_value, label_columns
from compress.tasks.parsing.labels import UnknownClass
from compress.tasks.validate_task import task_problems

DATA_FILE = "data.json"

RARE = 30
"""A class of more rows than this is never held back as a whole by a random split."""

Masks = Mapping[Role, RowMask] | None
"""Which rows of a source go to which role; None if all stay in their own."""


class DataInfo(RowWarnings):
    """The contents of data.json, which describes the prepared rows."""

    schema_version: Literal[1] = 1
    task_info: TaskInfo
    counts: Mapping[Role, int]
    """Rows of each role."""
    per_class: Mapping[Role, Mapping[str, int]] = {}
    """Rows of each class (multi-label: rows that have it); empty for regression."""
    held_back: tuple[Role, ...] = ()
    """Roles that were split off train because nothing was given for them."""
    contradictory: Mapping[Role, int] = {}
    """Rows whose text another row, of any role, has with another label."""
    select_share: float | None = None
    """The share of train that became select, where the recipe leaves it open."""
    duplicates: int = 0
    """Test rows whose text is also in train."""
    select_duplicates: int = 0
    """Select rows whose text is also in train."""
    documents: Mapping[Role, int] = {}
    """Documents that are searched for each role's rows."""
    guessed: int = 0
    """Rows of train without a label, which have the most probable class of their soft labels instead."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the classes in order."""
        return self.task_info.labels

    def split_like(self, task: Task) -> Task:
        """Return ``task`` with the share of select that was used."""
        return _with_select_share(task, self.select_share)


class PreparedData:
    """The prepared rows of a folder."""

    def __init__(self, folder: Path, info: DataInfo) -> None:
        self.folder = folder
        self.info = info
        self._rows: dict[Role, StoredRows] = {}

    def rows(self, role: Role) -> StoredRows:
        """Return the rows of a role, memory-mapped."""
        if role not in self._rows:
            self._rows[role] = StoredRows(self.folder, role)
        return self._rows[role]

    def documents(self, role: Role) -> Sequence[Row]:
        """Return the documents that are searched for a role's rows; none for kinds that do not search."""
        return StoredRows(self.folder, documents_name(role)) if kind_of(self.info.task_info).searches else ()


def load_prepared(folder: Path) -> PreparedData:
    """Open a folder written by ``prepare_splits``."""
    return PreparedData(folder, read_info(folder / DATA_FILE, DataInfo))


def prepare_splits(task: Task, seed: int, work: Path, console: Console | None = None) -> DataInfo:
    """Read and check the data of ``task``, and write each role's rows and data.json into ``work``.

    Rows are streamed. Files are read again only where something must be known first: the classes where the recipe does
    not name them, the number of rows where some are split off or left out. ``seed`` decides which; a run takes
    `task.data.split_seed`.
    """
    problems = task_problems(task)
    if problems:
        raise DataError("\n  ".join(["the task cannot be prepared:", *map(str, problems)]))
    console = console or Console("quiet")
    kind, sources = kind_of(task), open_sources(task, console)
    select_share = _automatic_share(task, sources)
    task = _with_select_share(task, select_share)
    columns = label_columns(task)
    values = (column_value(raw.values, column, task, raw.where) for raw in sources["train"]() for column in columns)
    labels = kind.labels(values, task)
    shares = split_shares(task, sources)
    statistics = RowStatistics(kind, labels)
    for role, source in sources.items():
        masks = row_masks(source, role, shares if role == "train" else {}, task, labels, seed)
        try:
            _write_rows(source, role, masks, task, work, statistics)
        except UnknownClass as error:
            if role == "train":
                raise
            refuse_identifiers(statistics, statistics.count("train"), task, sources["train"])
            raise unseen_classes(error, source, role, task, labels) from error
    check_roles(statistics, shares, task, sources["train"], console)
    if task.hard_negatives:
        mean = add_hard_negatives(work, "train", task.hard_negatives)
        console.note(f"hard negatives: a row of train has {mean:.1f} on average; {task.hard_negatives} were requested")
    info = DataInfo(
        task_info=task_info(task, labels),
        counts={role: statistics.count(role) for role in ROLES},
        per_class={role: statistics.per_class(role) for role in ROLES} if labels else {},
        held_back=tuple(shares),
        contradictory=statistics.contradictory(ROLES),
        select_share=select_share,
        duplicates=statistics.shared("test", "train"),
        select_duplicates=statistics.shared("select", "train"),
        empty_texts=statistics.empty_texts.total(),
        guessed=statistics.guessed,
        documents={role: len(StoredRows(work, documents_name(role))) for role in ROLES[1:]} if kind.searches else {},
        skipped=statistics.skipped.total(),
        first_skipped=next(iter(statistics.first_skipped.values()), None),
    )
    _print_summary(info, seed, console)
    write_info(work / DATA_FILE, info)
    return info


def split_shares(task: Task, given: Collection[Role]) -> dict[Role, float]:
    """Return the shares of train that are split off as the roles for which nothing is ``given``."""
    shares: dict[Role, float | str] = {"select": task.data.select_share, "test": task.data.test_share}
    return {role: float(share) for role, share in shares.items() if role not in given}


def _automatic_share(task: Task, sources: Mapping[Role, Source]) -> float | None:
    """Return the share of train that becomes select; None where the recipe gives it or rows of its own."""
    if task.data.select_share != "auto" or "select" in sources:
        return None
    left = 1.0 if "test" in sources else 1.0 - task.data.test_share
    return automatic_share(sum(1 for _ in sources["train"]()), left)


def _with_select_share(task: Task, share: float | None) -> Task:
    data = task.data if share is None else task.data.model_copy(update={"select_share": share})
    return task.model_copy(update={"data": data})


def row_masks(
    source: Source, role: Role, shares: Mapping[Role, float], task: Task, labels: tuple[str, ...], seed: int
) -> Masks:
    """Return which rows of a source go to which role; None if all stay in their own."""
    labelled = task.data.labelled if role == "train" else None
    if not shares and task.data.limit is None and labelled is None:
        return None
    rare = _rare_classes(source, task, labels) if shares and labels else {}
    return assign_roles(sum(1 for _ in source()), seed, shares, task.data.limit, role, labelled, rare)


def rows_without_labels(
    source: Source, shares: Mapping[Role, float], task: Task, labels: tuple[str, ...], seed: int
) -> RowMask:
    """Return the rows of train whose labels are not used, because there are more than `data.labelled`."""
    rare = _rare_classes(source, task, labels) if shares and labels else {}
    used, every = (
        assign_roles(sum(1 for _ in source()), seed, shares, task.data.limit, "train", labelled, rare)["train"]
        for labelled in (task.data.labelled, None)
    )
    return every & ~used


def _rare_classes(source: Source, task: Task, labels: tuple[str, ...]) -> Mapping[int, Sequence[int]]:
    """Return by row number those of its classes that have few rows, which a random split might all hold back."""
    kind, rows = kind_of(task), defaultdict[int, list[int]](list)
    for number, _, row in valid_rows(source, task, labels, "train"):
        for label in kind.row_classes(row):
            if len(rows[label]) <= RARE:
                rows[label].append(number)
    rare = defaultdict[int, list[int]](list)
    for label, numbers in rows.items():
        for number in numbers if len(numbers) <= RARE else ():
            rare[number].append(label)
    return rare


def _write_rows(source: Source, role: Role, masks: Masks, task: Task, work: Path, statistics: RowStatistics) -> None:
    """Write a source's rows to their roles; every row is checked, also those that a limit leaves out."""
    with ExitStack() as files:
        targets = [role] if masks is None else list(masks)
        writers = {target: RoleWriter(work, target, kind_of(task), files) for target in targets}
        for number, raw, row in valid_rows(source, task, statistics.labels, role, partial(statistics.skip, role)):
            if row.get(LABELLED) is False:
                check_true_labels(task, raw.where)
            for target, writer in writers.items():
                if masks is None or is_selected(masks[target], number, raw.where):
                    for stored in writer.add(row):
                        statistics.add(target, stored)
        if "test" in writers and writers["test"].searches:
            for text in corpus_documents(task):
                writers["test"].number(text)


def is_selected(mask: RowMask, number: int, where: str) -> bool:
    """Return whether the mask selects a row; a row beyond those counted before is an error."""
    if number >= len(mask):
        raise DataError(f"{where} is new: the file changed while it was read.")
    return bool(mask[number])


def _print_summary(info: DataInfo, seed: int, console: Console) -> None:
    counts = ", ".join(f"{role} {info.counts[role]:,}" for role in ROLES)
    split = f"; {' and '.join(info.held_back)} split off train (split_seed {seed})" if info.held_back else ""
    console.note(f"rows: {counts}{split}")
    if info.guessed:
        rows = pluralize(info.guessed, "row")
        console.note(f"{rows} of train without a label: the most probable class of the soft labels is used")
    if info.documents:
        documents = ", ".join(f"{role} {count:,}" for role, count in info.documents.items())
        console.note(f"documents that are searched: {documents}")
    kind, metric = info.task_info.kind, info.task_info.metric
    shared: dict[Role, int] = {"test": info.duplicates, "select": info.select_duplicates}
    for role, count in shared.items():
        if count:
            console.warn(f"{count:,} of {info.counts[role]:,} {role} rows have a text that is also in train.")
    for problem in label_problems(kind, metric, info.counts, info.contradictory, info.per_class):
        console.warn(problem)
    info.warn(console)
