"""A file of rows in, the same rows with a model's answers out: in parts, on several processes, and again after a kill.

The same command goes on with the parts that are missing. When all are done, those of all shards, they are put together.
Answers follow from a part alone: the numbers of processes and shards do not matter.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from compress.bulk.answer_part import bad_row, open_worker, taken
from compress.bulk.bulk_job import FINISHED_FILE, JOB_FILE, LOCK, BulkJob, JobInfo, PartInfo, Shard, ShardInfo
from compress.bulk.read_table import Part, TableFile
from compress.bulk.workers import run_jobs
from compress.bulk.write_table import merge_parts
from compress.console import Console, duration
from compress.errors import CompressError, DataError, UsageError, pluralize
from compress.storage.atomic_write import sync, why_unwritable


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
    if _was_finished(job, console):
        return
    check_columns(job)
    _open_parts(job)
    with _sole_writer(job):
        start = time.monotonic()
        totals = _answer_parts(job, console)
        seconds = time.monotonic() - start
        if job.shard.count > 1:
            _say_shard(job, totals, console)
        else:
            _put_together(job, _finished_parts(job, _part_count(job.shard_path(0))), console, totals, seconds)


def _was_finished(job: BulkJob, console: Console) -> bool:
    if job.is_finished:
        console.note(f"{job.target}: done before")
    return job.is_finished


@contextmanager
def _sole_writer(job: BulkJob, *, of_all_shards: bool = False) -> Iterator[None]:
    """Within the block, no other process answers this shard of a file, or any of them."""
    own = job.parts_folder / f"{LOCK}{job.shard.index}"
    others = job.parts_folder.glob(f"{LOCK}*") if of_all_shards else ()
    with ExitStack() as held:
        for path in sorted({own, *others}):
            try:
                held.enter_context(FileLock(path).acquire(timeout=0))
            except Timeout as error:
                raise UsageError(f"another process writes {job.target} just now.") from error
        yield


def check_columns(job: BulkJob) -> None:
    """Refuse before any row is predicted what no row could be right with."""
    columns = job.file.columns() or ()
    if not job.is_lines:
        job.file.check_columns(job.text)
    if used := [name for name in job.added_columns if name in columns]:
        raise taken(job.file.shown, used[0])
    job.file.check_types(job.text, job.format)


def _check_target(job: BulkJob) -> None:
    if job.target.exists() and not job.replace:
        raise UsageError(f"{job.target} exists.", hint="--replace writes it anew")


def make_folder(folder: Path, target: str) -> None:
    """Make a folder of an output, or say why that cannot be written."""
    if reason := why_unwritable(folder):
        raise UsageError(f"{target} cannot be written: {reason}.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # of a system that lists what it does not allow, such as /proc
        raise UsageError(f"{target} cannot be written: {error.strerror}.") from error


def _open_parts(job: BulkJob) -> None:
    """Make the folder of parts, or take one that holds parts of the same job."""
    _check_target(job)
    make_folder(job.parts_folder, str(job.target))
    try:
        written = job.written_info()
    except DataError:
        if not job.replace:
            raise
        _start_anew(job)
        return
    if written is None and not any(not path.name.startswith(LOCK) for path in job.parts_folder.iterdir()):
        job.write_info()
    elif written is None:  # left by a process that was killed while it removed them
        _start_anew(job)
    elif different := written.differences(job.info):
        if not (job.replace or (job.parts_folder / FINISHED_FILE).exists()) and _has_answers(job, written):
            raise UsageError(
                f"{job.parts_folder} holds parts of another job: {', '.join(different)}.",
                hint="--replace starts anew, another --to leaves it",
            )
        _start_anew(job)
    else:
        (job.parts_folder / FINISHED_FILE).unlink(missing_ok=True)  # of an output that is gone


def _start_anew(job: BulkJob) -> None:
    """Make the parts those of this job alone, unless another process writes them."""
    with _sole_writer(job, of_all_shards=True):
        if not _has_begun(job):  # another shard may have started anew meanwhile
            job.remove_parts()
            job.write_info()


def _has_begun(job: BulkJob) -> bool:
    """Whether the parts are of this job, and no output yet."""
    with suppress(DataError):
        written = job.written_info()
        is_same = written is not None and not written.differences(job.info)
        return is_same and not (job.parts_folder / FINISHED_FILE).exists()
    return False


def _has_answers(job: BulkJob, written: JobInfo) -> bool:
    """Whether a folder of parts holds anything to lose: a finished part, or shards that others may be answering."""
    several = max(job.shard.count, written.shards) > 1
    return several or any(path.name != JOB_FILE for path in job.parts_folder.glob("*.json"))


def _answer_parts(job: BulkJob, console: Console) -> Totals:
    """Answer the parts of a shard that are not finished."""
    totals, before = Totals(), _size_and_time(job.file)
    count = read = 0

    def missing() -> Iterator[Part]:
        nonlocal count, read
        for part in job.file.parts():
            count, read = part.index + 1, read + part.characters
            if part.index % job.shard.count != job.shard.index:
                continue
            if done := job.part_info(part.index):
                totals.add(done)
                continue
            if part.faults and part.columns and job.bad_rows != "keep":  # before earlier parts are predicted
                index = min(part.faults)
                raise bad_row(f"{job.file.shown}, {part.where(index)}", part.faults[index])
            yield part

    total = job.file.row_count() if job.shard.count == 1 else None
    size = job.file.path.stat().st_size if job.file.has_plain_size and total is None else 0
    with console.progress(total, f"predict {job.file.path.name}", "rows") as progress:
        for index, done in run_jobs(open_worker, job, missing(), job.workers):
            job.finish_part(index, done)
            totals.add(done)
            totals.predicted += done.rows
            share = min(0.99, read / size) if size else 0.0
            left = duration(progress.elapsed * (1 - share) / share) + " left" if share else None
            progress.advance(done.rows, left=left)
    if _size_and_time(job.file) != before:
        job.discard()
        raise DataError(f"{job.file.shown} changed while it was read; what was predicted of it is removed.")
    job.finish_shard(count)
    return totals


def _size_and_time(file: TableFile) -> tuple[int, int]:
    found = file.path.stat()
    return found.st_size, found.st_mtime_ns


def _part_count(shard: Path) -> int:
    return ShardInfo.model_validate_json(shard.read_bytes()).parts


def _say_shard(job: BulkJob, totals: Totals, console: Console) -> None:
    shard, count = f"shard {job.shard.index}/{job.shard.count}", _part_count(job.shard_path(job.shard.index))
    if totals.rows:
        text = f"{shard}: {totals.described()}, in {job.parts_folder}; --merge writes {job.target} when all are done"
    else:
        text = f"{shard} has no rows: {job.file.shown} has {pluralize(count, 'part')}"
    console.data({"shard": job.shard.index, "of": job.shard.count, "rows": totals.rows, "bad": totals.bad}, text)


def merge_shards(job: BulkJob, console: Console) -> None:
    """Put the parts of all shards together; refuses while one is missing, or where they are of another job."""
    written = job.written_info()
    if written is not None:
        job = replace(job, shard=Shard(0, written.shards))
    if _was_finished(job, console):
        return
    _check_target(job)
    if written is None:
        raise UsageError(f"{job.parts_folder} has no {JOB_FILE}: no shard of {job.target} has begun.")
    if different := written.differences(job.info):
        raise UsageError(f"{job.parts_folder} holds parts of another job: {', '.join(different)}.")
    count = job.shard.count
    if missing := [index for index in range(count) if not job.shard_path(index).is_file()]:
        shown = ", ".join(f"{index}/{count}" for index in missing[:10])
        raise UsageError(f"{pluralize(len(missing), 'shard')} of {count} not done: {shown}.", hint="--shard runs one")
    with _sole_writer(job, of_all_shards=True):
        _put_together(job, _finished_parts(job, _part_count(job.shard_path(0))), console, None, 0.0)


def _finished_parts(job: BulkJob, count: int) -> list[PartInfo]:
    """Return what is said of all parts; one that is missing is an error."""
    found = []
    for index in range(count):
        part = job.part_info(index)
        if part is None:
            raise CompressError(f"{job.parts_folder} lacks part {index}.", hint="run its shard again")
        found.append(part)
    return found


def _put_together(
    job: BulkJob, parts: Sequence[PartInfo], console: Console, this_run: Totals | None, seconds: float
) -> None:
    """Write the whole output, under another name until it is complete; its parts go."""
    paths = [job.part_path(index) for index in range(len(parts))]
    columns = tuple(dict.fromkeys(column for part in parts for column in part.columns))
    temporary = job.target.with_name(f".{job.target.name}.new")
    try:
        merge_parts(paths, temporary, job.format, columns, job.added_columns)
        sync(temporary)
        job.mark_finished(temporary)
        temporary.replace(job.target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(job.target.parent)
    job.finish()
    totals = Totals()
    for part in parts:
        totals.add(part)
    text = f"{job.target}: {totals.described()}"
    rate = this_run.predicted / seconds if this_run and this_run.predicted and seconds else None
    if rate:
        text += f"; {rate:,.0f} rows a second, {duration(seconds)}"
    facts = {"file": str(job.target), "rows": totals.rows, "empty": totals.empty, "bad": totals.bad}
    console.data({**facts, "columns": job.added_columns, "rows_per_second": rate and round(rate, 1)}, text)
