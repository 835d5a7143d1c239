"""From raw data to the three roles: checked canonical rows on disk, read by every later step.

**train** is trained on, **select** decides (checkpoints, gate, winner), **test** is scored once at the end.
"""

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from compress.batch_arrays import EXTRA_NAMES
from compress.console import Console
from compress.data.hard_negatives import add_hard_negatives
from compress.data.loading.data_digest import ROLES
from compress.data.loading.row_sources import (
    CopiedRows,
    Source,
    corpus_documents,
    open_sources,
)
from compress.data.splits.check_roles import check_roles, refuse_identifiers, unseen_classes
from compress.data.splits.row_statistics import Indices, RowStatistics, RowWarnings, read_info, write_info
from compress.data.splits.row_store import (
    ROWS,
    RowWriter,
    SearchedRows,
    StoredRows,
    documents_name,
    remove_rows,
    subset_file,
    write_subset,
)
from compress.data.splits.split_indices import TooFewGroups, assign_roles, automatic_share
from compress.data.splits.store_source import SourceRows, store_source
from compress.errors import DataError, pluralize
from compress.model_folder.model_info import TaskInfo
from compress.recipe.field_types import Role
from compress.recipe.task_schema import Task
from compress.tasks import Row, kind_of, task_info
from compress.tasks.base import RawRow
from compress.tasks.parsing.columns import column_value, has_column, label_columns
from compress.tasks.parsing.labels import UnknownClass
from compress.tasks.validate_task import label_problems, task_problems

DATA_FILE = "data.json"

RARE = 30
"""A class of more rows than this is never held back as a whole by a random split."""

TEST_NUMBERS = "test.numbers.npy"
"""The numbers of the rows of test in their source."""


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


class PreparedData:
    """The prepared rows of a folder."""

    def __init__(self, folder: Path, info: DataInfo) -> None:
        self.folder = folder
        self.info = info
        self._rows: dict[Role, StoredRows] = {}

    def rows(self, role: Role) -> StoredRows:
        """Return the rows of a role, memory-mapped."""
        if role not in self._rows:
            # Rows of select and test are scored by their true label alone.
            self._rows[role] = StoredRows(self.folder, role, without=() if role == "train" else EXTRA_NAMES)
        return self._rows[role]

    def left_by_labelled(self) -> StoredRows:
        """Return the rows of train of which `labelled` uses the texts alone."""
        return StoredRows(self.folder, "unlabelled")

    def test_numbers(self) -> Indices:
        """Return the numbers of the rows of test in their source, from 0."""
        numbers: Indices = np.load(self.folder / TEST_NUMBERS)
        return numbers

    def documents(self, role: Role) -> Sequence[Row]:
        """Return the documents that are searched for a role's rows; none for kinds that do not search."""
        return StoredRows(self.folder, documents_name(role)) if kind_of(self.info.task_info).searches else ()


def load_prepared(folder: Path) -> PreparedData:
    """Open a folder written by ``prepare_splits``."""
    return PreparedData(folder, read_info(folder / DATA_FILE, DataInfo))


def prepare_splits(task: Task, seed: int, work: Path, console: Console | None = None) -> DataInfo:
    """Read and check the data of ``task``, and write its rows, their roles and data.json into ``work``.

    Each source is read once: every row that fits the task is stored, and then chosen for a role. ``seed`` decides which
    rows are split off or left out; a run takes `task.data.split_seed`.
    """
    problems = task_problems(task)
    if problems:
        raise DataError("\n  ".join(["the task cannot be prepared:", *map(str, problems)]))
    console = console or Console("quiet")
    kind, sources = kind_of(task), open_sources(task, console)
    select_share, shares = None, dict[Role, float]()
    with RowWriter(work, ROWS) as store, tempfile.TemporaryFile(dir=work) as copy:
        labels, train = _learn_classes(task, sources["train"], copy)
        statistics = RowStatistics(kind, labels)
        for role, source in sources.items():
            stored = len(store)
            try:
                rows = store_source(train if role == "train" else source, role, task, store, statistics)
            except UnknownClass as error:
                if role == "train":
                    raise
                refuse_identifiers(statistics, statistics.count("train"), task, sources["train"])
                raise unseen_classes(error, source, role, task, labels) from error
            if role == "train":
                select_share = _automatic_share(task, rows.total, sources)
                shares = _split_shares(task, sources, select_share)
            _assign(rows, stored, role, shares if role == "train" else {}, task, seed, work, statistics, console)
    if kind.searches:
        _write_searched(task, work, statistics)
    check_roles(statistics, shares, task, sources["train"], work, console)
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
        empty_texts=statistics.empty_texts(),
        guessed=statistics.guessed(),
        documents={role: len(StoredRows(work, documents_name(role))) for role in ROLES[1:]} if kind.searches else {},
        skipped=statistics.skipped.total(),
        first_skipped=next(iter(statistics.first_skipped.values()), None),
    )
    _print_summary(info, seed, console)
    write_info(work / DATA_FILE, info)
    return info


def _learn_classes(task: Task, train: Source, copy: IO[bytes]) -> tuple[tuple[str, ...], Source]:
    """Return the classes, and a source of the rows: a copy where all were read because the recipe names no classes."""
    copied, columns = CopiedRows(train, copy), label_columns(task)
    readable = (raw for raw in copied() if raw.fault is None)
    labels = kind_of(task).labels(_label_values(readable, columns, task), task)
    return labels, copied if copied.is_complete else train


def _label_values(rows: Iterable[RawRow], columns: Sequence[str], task: Task) -> Iterator[Any]:
    """Yield what rows hold in the columns of labels, which some may lack; raise MissingColumn where all do."""
    without = dict[str, RawRow]()
    known = set[str]()
    for raw in rows:
        for column in columns:
            if has_column(raw.values, column, task):
                known.add(column)
                yield column_value(raw.values, column, task, raw.where)
            else:
                without.setdefault(column, raw)
    for column in (each for each in columns if each in without and each not in known):
        column_value(without[column].values, column, task, without[column].where)


def _assign(
    rows: SourceRows,
    stored: int,
    role: Role,
    shares: Mapping[Role, float],
    task: Task,
    seed: int,
    work: Path,
    statistics: RowStatistics,
    console: Console,
) -> None:
    """Choose the roles of a source's rows, of which the first is number ``stored``, and write which rows they have."""
    fits = statistics.fits()[stored:]
    rare = statistics.rare_classes(RARE) if shares and statistics.labels else {}
    by_number = {int(rows.numbers[row - stored]): labels for row, labels in rare.items()}
    labelled = task.data.labelled if role == "train" else None
    readable = np.zeros(rows.total, np.bool_)
    readable[rows.numbers] = fits
    limits = task.data.limit, role, labelled
    try:
        roles = assign_roles(rows.total, seed, shares, *limits, by_number, readable, rows.groups if shares else None)
    except TooFewGroups as error:
        if task.data.group is not None:
            raise DataError(
                f"task.data.group: {error}", hint="smaller shares, files of their own, or no group"
            ) from error
        console.warn(f"{error}: questions about one text may be of several roles.")
        roles = assign_roles(rows.total, seed, shares, *limits, by_number, readable)
    for part, mask in roles.items():
        chosen = mask[rows.numbers] & (fits if part != "unlabelled" else True)
        indices = stored + np.flatnonzero(chosen)
        write_subset(work, part, indices)
        if part == "test":
            np.save(work / TEST_NUMBERS, rows.numbers[chosen])
        if part != "unlabelled":
            statistics.assign(part, indices)


def _write_searched(task: Task, work: Path, statistics: RowStatistics) -> None:
    """Write the rows of each role anew, in the form that it stores, with the documents that are searched for them."""
    kind = kind_of(task)
    statistics.forget_rows()
    for role in ROLES:
        first = len(statistics)
        with ExitStack() as files:
            writer = SearchedRows(work, role, kind, files)
            for row in StoredRows(work, role):
                for stored in writer.add(row):
                    statistics.add(stored)
            for text in corpus_documents(task) if role == "test" else ():
                writer.number(text)
        subset_file(work, role).unlink()
        statistics.assign(role, np.arange(first, len(statistics)))
    if task.data.labelled is None:
        remove_rows(work, ROWS)


def _split_shares(task: Task, given: Collection[Role], select_share: float | None) -> dict[Role, float]:
    """Return the shares of train that are split off as the roles for which nothing is ``given``."""
    shares: dict[Role, float | str] = {"select": task.data.select_share, "test": task.data.test_share}
    if select_share is not None:
        shares["select"] = select_share
    return {role: float(share) for role, share in shares.items() if role not in given}


def _automatic_share(task: Task, rows: int, given: Collection[Role]) -> float | None:
    """Return the share of train that becomes select; None where the recipe gives it or rows of its own."""
    if task.data.select_share != "auto" or "select" in given:
        return None
    return automatic_share(rows, 1.0 if "test" in given else 1.0 - task.data.test_share)


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
