"""A file of rows in, the same rows with a model's answers out: in parts, on several processes, and again after a kill.

Beside OUT, the folder `OUT.parts` holds what is finished: a file for each part, and `job.json`, which says what they
were made of. The same command goes on with what is missing. A shard of N does each N-th part; when all shards are done
their parts are put together. Answers follow from a part alone: the numbers of processes and shards do not matter.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from filelock import FileLock, Timeout
from pydantic import ValidationError

from compress.bulk.bulk_predictor import ERROR, BulkPredictor
from compress.bulk.read_table import LINE, PART_ROWS, Part, TableFile, cells_of, parsed_objects
from compress.bulk.workers import run_jobs
from compress.bulk.write_table import merge_parts, part_format, write_part
from compress.console import Console, duration
from compress.errors import CompressError, DataError, UsageError, first_error, nearest, pluralize
from compress.storage.atomic_write import atomic_write, sync, why_unwritable
from compress.storage.file_digests import combined_digest, digests, file_digest
from compress.storage.stored_info import Info, up_to

JOB_FILE = "job.json"
KEEP_HINT = "--bad-rows keep gives such rows an empty answer, and counts them"


class JobInfo(Info):
    """The content of job.json: all that the parts follow from."""

    schema_version: Annotated[int, up_to(1)] = 1
    file: str
    """The sha256 of what is read."""
    model: str
    """One digest of all files of the model's folder."""
    text: tuple[str, ...]
    format: str
    prefix: str
    probabilities: bool
    encoding: str
    bad_rows: str
    batch: int | None
    device: str
    shards: int
    part_rows: int = PART_ROWS
    """Of this version of compress."""


SAYS = {
    "file": "another content of the file",
    "model": "another model",
    "text": "other columns of text",
    "format": "another format",
    "prefix": "another prefix",
    "probabilities": "other answers",
    "encoding": "another encoding",
    "bad_rows": "another --bad-rows",
    "batch": "another batch",
    "device": "another device",
    "shards": "another number of shards",
    "part_rows": "another version of compress",
}
"""How a message names a difference."""


class PartInfo(Info):
    """What is said of a finished part, whose file it completes."""

    rows: int
    empty: int
    bad: int
    columns: tuple[str, ...]


class ShardInfo(Info):
    """What is said of a shard that is done."""

    parts: int
    """Of the whole file."""


@dataclass(frozen=True)
class Shard:
    """Every N-th part of a file, counted from 0 as the indices of Kubernetes jobs are."""

    index: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read `3/16`."""
        index, slash, count = text.partition("/")
        if not slash or not index.isdecimal() or not count.isdecimal() or not 0 <= int(index) < int(count) <= 1_000_000:
            raise UsageError(f"--shard {text}: expected K/N, with K from 0 to N-1: 0/16 to 15/16 are the shards of 16.")
        return cls(int(index), int(count))


@dataclass(frozen=True)
class WorkerSetup:
    """What a process needs to answer parts."""

    folder: Path
    text: tuple[str, ...]
    prefix: str
    probabilities: bool
    batch: int | None
    device: str
    threads: int
    name: str
    """Of the file, for messages."""
    is_lines: bool
    """Whether a row is a line of text, with tabs between texts that are read together."""
    keep_bad: bool
    parts: Path
    format: str


def open_worker(setup: WorkerSetup) -> Callable[[Part], tuple[int, PartInfo]]:
    """Open the model; return what writes a part with its answers, and what is said of it."""
    predictor = BulkPredictor(
        setup.folder,
        text=setup.text,
        prefix=setup.prefix,
        probabilities=setup.probabilities,
        batch=setup.batch,
        device=setup.device,
        threads=setup.threads,
    )
    return lambda part: (part.index, _answer_part(part, predictor, setup))


def _answer_part(part: Part, predictor: BulkPredictor, setup: WorkerSetup) -> PartInfo:
    objects, faults = (None, part.faults) if part.columns else parsed_objects(part)
    names = [*predictor.names, *([predictor.prefix + ERROR] if setup.keep_bad else [])]
    where = [f"{setup.name}, {part.where(index)}" for index in range(len(part))]
    for row, values in enumerate(objects or ()):
        if taken := [name for name in names if name in values]:
            raise _taken(f"{where[row]}: the object", taken[0])
        if values and (missing := [name for name in predictor.columns if name not in values]):
            faults.setdefault(row, f"it has no '{missing[0]}'{nearest(missing[0], values)}")
    columns = (LINE,) if setup.is_lines else predictor.columns
    cells: list[Sequence[Any]] = list(cells_of(part, columns, objects))
    if setup.is_lines and len(predictor.columns) > 1:
        cells = [line.split("\t") for (line,) in cells]
    cells = [() if index in faults else each for index, each in enumerate(cells)]
    found = predictor.answer(cells, where)
    faults = {**faults, **found.faults}
    if faults and not setup.keep_bad:
        index = min(faults)
        raise bad_row(where[index], faults[index])
    answers = [{field: answer.get(field) for field in predictor.fields} for answer in found.answers]
    if setup.keep_bad:
        answers = [{**answer, ERROR: faults.get(index)} for index, answer in enumerate(answers)]
    path = setup.parts / _part_name(part.index, setup.format)
    write_part(path, setup.format, part, objects, names, answers)
    keys = tuple(dict.fromkeys(key for row in objects or () for key in row)) if objects is not None else part.columns
    bad = len(faults)
    return PartInfo(rows=len(part), empty=found.empty - len(set(faults) - set(found.faults)), bad=bad, columns=keys)


def bad_row(where: str, fault: str) -> DataError:
    """Return the error for a row that cannot be read."""
    return DataError(f"{where}: {fault}", hint=KEEP_HINT)


def _taken(what: str, name: str) -> UsageError:
    return UsageError(
        f"{what} has a column '{name}' already.", hint="--prefix model_ goes before the names of the answer columns"
    )


def _part_name(index: int, form: str) -> str:
    return f"{index:06d}.{form}"


@dataclass(frozen=True)
class BulkJob:
    """One file to answer."""

    model: Path
    file: TableFile
    target: Path
    format: str
    text: tuple[str, ...]
    names: tuple[str, ...]
    """Of the answer columns."""
    batch: int | None = None
    """Texts that run together."""
    prefix: str = ""
    probabilities: bool = False
    bad_rows: str = "refuse"
    shard: Shard = Shard()
    device: str = "cpu"
    threads: int = 1
    workers: int = 1
    replace: bool = False

    @property
    def parts_folder(self) -> Path:
        """Where finished parts are."""
        return self.target.with_name(f"{self.target.name}.parts")

    @cached_property
    def info(self) -> JobInfo:
        """Everything that the parts follow from."""
        return JobInfo(
            file=file_digest(self.file.path),
            model=combined_digest(digests(self.model)),
            text=self.text,
            format=self.format,
            prefix=self.prefix,
            probabilities=self.probabilities,
            encoding=self.file.encoding,
            bad_rows=self.bad_rows,
            batch=self.batch,
            device=self.device,
            shards=self.shard.count,
        )

    def setup(self) -> WorkerSetup:
        """Return what its processes need."""
        return WorkerSetup(
            folder=self.model,
            text=() if self._is_lines else self.text,
            prefix=self.prefix,
            probabilities=self.probabilities,
            batch=self.batch,
            device=self.device,
            threads=self.threads,
            name=self.file.shown,
            is_lines=self._is_lines,
            keep_bad=self.bad_rows == "keep",
            parts=self.parts_folder,
            format=part_format(self.format, self.file.format),
        )

    @property
    def _is_lines(self) -> bool:
        return self.file.format == "txt"


@dataclass
class Totals:
    """Counts of rows."""

    rows: int = 0
    empty: int = 0
    bad: int = 0
    predicted: int = 0
    """Of this process, the others were finished before."""

    def add(self, part: PartInfo) -> None:
        """Count a part."""
        self.rows += part.rows
        self.empty += part.empty
        self.bad += part.bad

    def described(self) -> str:
        """Return `1,000 rows, 3 without text, 1 that could not be read`."""
        empty = f"{self.empty:,} without text" if self.empty else ""
        bad = f"{self.bad:,} that could not be read" if self.bad else ""
        return ", ".join(filter(None, [pluralize(self.rows, "row"), empty, bad]))


def run_job(job: BulkJob, console: Console) -> None:
    """Answer what is missing of a file, or of a shard of it; a whole file is then put together."""
    _check_columns(job)
    _open_parts(job)
    lock = FileLock(job.parts_folder / f".lock-{job.shard.index}")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise UsageError(f"another process writes {job.target} just now.") from error
    with lock:
        start = time.monotonic()
        totals = _answer_parts(job, console)
        seconds = time.monotonic() - start
        if job.shard.count > 1:
            _say_shard(job, totals, console)
        else:
            _put_together(job, _finished(job, _part_count(job)), console, totals, seconds)


def _check_columns(job: BulkJob) -> None:
    """Refuse before any row is predicted what no row could be right with."""
    columns = job.file.columns()
    if job.file.format != "txt":
        for name in job.text if columns else ():
            if name not in (columns or ()):
                shown = ", ".join((columns or ())[:20])
                guess = nearest(name, columns or ()).partition(" (known")[0]
                raise UsageError(
                    f"{job.file.shown} has no column '{name}'; its columns are {shown}{guess}",
                    hint="--text names the column of text",
                )
    if taken := [name for name in job.names if name in (columns or ())]:
        raise _taken(job.file.shown, taken[0])
    job.file.check_types(job.text, job.format)


def _open_parts(job: BulkJob) -> None:
    """Make the folder of parts, or take one that holds parts of the same job."""
    if job.target.exists() and not job.replace:
        raise UsageError(f"{job.target} exists.", hint="--replace writes it anew")
    if reason := why_unwritable(job.target.parent):
        raise UsageError(f"{job.target} cannot be written: {reason}.")
    path = job.parts_folder / JOB_FILE
    if path.exists():
        different = [SAYS[name] for name, value in read_job(path) if name in SAYS and getattr(job.info, name) != value]
        if different and not job.replace:
            raise UsageError(
                f"{job.parts_folder} holds parts of another job: {', '.join(different)}.",
                hint="--replace starts anew, another --to leaves it",
            )
        if not different:
            return
        shutil.rmtree(job.parts_folder)
    job.parts_folder.mkdir(parents=True, exist_ok=True)
    atomic_write(path, job.info.model_dump_json(indent=1) + "\n")


def read_job(path: Path) -> JobInfo:
    """Read a job.json."""
    try:
        return JobInfo.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise DataError(f"{path} cannot be read: {first_error(error)}", hint="--replace starts anew") from error


def _answer_parts(job: BulkJob, console: Console) -> Totals:
    """Answer the parts of a shard that are not finished."""
    totals, setup = Totals(), job.setup()
    before, size = _state(job.file), job.file.path.stat().st_size
    count = 0
    read = 0

    def missing() -> Iterator[Part]:
        nonlocal count, read
        for part in job.file.parts():
            count, read = part.index + 1, read + part.characters
            if part.index % job.shard.count != job.shard.index:
                continue
            if done := _part_info(job, part.index):
                totals.add(done)
                continue
            if part.faults and part.columns and job.bad_rows != "keep":
                index = min(part.faults)
                raise bad_row(f"{job.file.shown}, {part.where(index)}", part.faults[index])
            yield part

    total = job.file.row_count() if job.shard.count == 1 else None
    with console.progress(total, f"predict {job.file.path.name}", "rows") as progress:
        for index, done in run_jobs(open_worker, setup, missing(), job.workers):
            atomic_write(_info_path(job, index), done.model_dump_json() + "\n")
            totals.add(done)
            totals.predicted += done.rows
            share = min(0.99, read / size) if size and job.file.has_plain_size else 0.0
            left = duration(progress.elapsed * (1 - share) / share) + " left" if share and total is None else None
            progress.advance(done.rows, left=left)
    if _state(job.file) != before:
        shutil.rmtree(job.parts_folder)
        raise DataError(f"{job.file.shown} changed while it was read; what was predicted of it is removed.")
    atomic_write(_shard_path(job, job.shard.index), ShardInfo(parts=count).model_dump_json() + "\n")
    return totals


def _state(file: TableFile) -> tuple[int, int]:
    found = file.path.stat()
    return found.st_size, found.st_mtime_ns


def _info_path(job: BulkJob, index: int) -> Path:
    return job.parts_folder / f"{index:06d}.json"


def _shard_path(job: BulkJob, index: int) -> Path:
    return job.parts_folder / f"shard-{index}-of-{job.shard.count}.json"


def _part_info(job: BulkJob, index: int) -> PartInfo | None:
    """Return what is said of a part, if it is finished."""
    try:
        return PartInfo.model_validate_json(_info_path(job, index).read_bytes())
    except (OSError, ValidationError):
        return None


def _part_count(job: BulkJob) -> int:
    return ShardInfo.model_validate_json(_shard_path(job, job.shard.index).read_bytes()).parts


def _say_shard(job: BulkJob, totals: Totals, console: Console) -> None:
    shard, count = f"shard {job.shard.index}/{job.shard.count}", _part_count(job)
    if totals.rows:
        text = f"{shard}: {totals.described()}, in {job.parts_folder}; --merge writes {job.target} when all are done"
    else:
        text = f"{shard} has no rows: {job.file.shown} has {pluralize(count, 'part')}"
    console.data({"shard": job.shard.index, "of": job.shard.count, "rows": totals.rows, "bad": totals.bad}, text)


def merge_shards(job: BulkJob, console: Console) -> None:
    """Put the parts of all shards together; refuses while one is missing, or where they are of another job."""
    path = job.parts_folder / JOB_FILE
    if job.target.exists() and not job.replace:
        raise UsageError(f"{job.target} exists.", hint="--replace writes it anew")
    if not path.is_file():
        raise UsageError(f"{job.parts_folder} has no {JOB_FILE}: no shard of {job.target} has begun.")
    written = read_job(path)
    expected = job.info.model_copy(update={"shards": written.shards})
    if different := [SAYS[name] for name, value in written if name in SAYS and getattr(expected, name) != value]:
        raise UsageError(f"{job.parts_folder} holds parts of another job: {', '.join(different)}.")
    shards = written.shards
    names = [job.parts_folder / f"shard-{index}-of-{shards}.json" for index in range(shards)]
    if missing := [index for index, name in enumerate(names) if not name.is_file()]:
        shown = ", ".join(f"{index}/{shards}" for index in missing[:10])
        raise UsageError(f"{pluralize(len(missing), 'shard')} of {shards} not done: {shown}.", hint="--shard runs one")
    count = ShardInfo.model_validate_json(names[0].read_bytes()).parts
    _put_together(job, _finished(job, count), console, None, 0.0)


def _finished(job: BulkJob, count: int) -> list[PartInfo]:
    """Return what is said of all parts; one that is missing is an error."""
    found = [_part_info(job, index) for index in range(count)]
    if None in found:
        raise CompressError(f"{job.parts_folder} lacks part {found.index(None)}.", hint="run its shard again")
    return [part for part in found if part is not None]


def _put_together(
    job: BulkJob, parts: Sequence[PartInfo], console: Console, this_run: Totals | None, seconds: float
) -> None:
    """Write the whole output, under another name until it is complete; its parts go."""
    form = part_format(job.format, job.file.format)
    paths = [job.parts_folder / _part_name(index, form) for index in range(len(parts))]
    columns = tuple(dict.fromkeys(column for part in parts for column in part.columns))
    temporary = job.target.with_name(f".{job.target.name}.new")
    names = [*job.names, *([job.prefix + ERROR] if job.bad_rows == "keep" else [])]
    try:
        merge_parts(paths, temporary, job.format, columns, names)
        sync(temporary)
        temporary.replace(job.target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(job.target.parent)
    shutil.rmtree(job.parts_folder)
    totals = Totals()
    for part in parts:
        totals.add(part)
    text = f"{job.target}: {totals.described()}"
    rate = this_run.predicted / seconds if this_run and this_run.predicted and seconds else None
    if rate:
        text += f"; {rate:,.0f} rows a second, {duration(seconds)}"
    facts = {"file": str(job.target), "rows": totals.rows, "empty": totals.empty, "bad": totals.bad}
    console.data({**facts, "columns": names, "rows_per_second": rate and round(rate, 1)}, text)
