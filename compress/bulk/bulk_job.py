"""What a bulk job is: a file, a model, and where the answers go; and what is written down of it while it runs.

Beside OUT, the folder `OUT.parts` holds what is finished: a file for each part, what is said of it, and `job.json`,
which says what all parts follow from. A shard of N does each N-th part. Where more files follow, `finished` takes the
place of the parts until the last one is done.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import ValidationError

from compress.bulk.bulk_predictor import ERROR
from compress.bulk.read_table import PART_ROWS, TableFile
from compress.bulk.write_table import part_format
from compress.errors import DataError, UsageError, first_error
from compress.storage.atomic_write import atomic_write
from compress.storage.file_digests import combined_digest, digests, file_digest
from compress.storage.stored_info import Info, up_to

JOB_FILE, FINISHED_FILE, LOCK = "job.json", "finished", ".lock-"
"""What parts follow from; that they have become the output; how the locks of shards begin."""


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
    read: str = ""
    """As what the file is read: `csv`."""
    part_rows: int = PART_ROWS
    """Of this version of compress."""

    def differences(self, other: JobInfo) -> list[str]:
        """Return in words what differs from another job."""
        return [text for name, text in DIFFERENCES.items() if getattr(self, name) != getattr(other, name)]


DIFFERENCES = {
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
    "read": "another kind of file",
    "part_rows": "another version of compress",
}
"""How messages name what differs."""


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
    is_one_of_many: bool = False
    """Whether more follows: then what says that the output is complete stays until the last one is."""

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
            read=self.file.format,
        )

    @property
    def is_lines(self) -> bool:
        """Whether a row is a line of text, with tabs between texts that are read together."""
        return self.file.format == "txt"

    @property
    def added_columns(self) -> list[str]:
        """The names of all columns that the output has beside those of the file."""
        return [*self.names, *([self.prefix + ERROR] if self.bad_rows == "keep" else [])]

    @property
    def part_format(self) -> str:
        """How parts are stored."""
        return part_format(self.format, self.file.format)

    def part_path(self, index: int) -> Path:
        """Where the rows of a part are, with their answers."""
        return self.parts_folder / f"{index:06d}.{self.part_format}"

    def part_info(self, index: int) -> PartInfo | None:
        """Return what is said of a part, if it is finished."""
        try:
            return PartInfo.model_validate_json(self._part_info_path(index).read_bytes())
        except (OSError, ValidationError):
            return None

    def finish_part(self, index: int, part: PartInfo) -> None:
        """Write down that a part is finished."""
        atomic_write(self._part_info_path(index), part.model_dump_json() + "\n")

    def shard_path(self, index: int) -> Path:
        """Where it is written that a shard is done, and of how many parts the file is."""
        return self.parts_folder / f"shard-{index}-of-{self.shard.count}.json"

    def finish_shard(self, parts: int) -> None:
        """Write down that all parts of this shard are finished."""
        atomic_write(self.shard_path(self.shard.index), ShardInfo(parts=parts).model_dump_json() + "\n")

    def written_info(self) -> JobInfo | None:
        """Return what the existing parts were made of; None where there are none."""
        path = self.parts_folder / JOB_FILE
        try:
            return JobInfo.model_validate_json(path.read_bytes()) if path.is_file() else None
        except ValidationError as error:
            raise DataError(f"{path} cannot be read: {first_error(error)}", hint="--replace starts anew") from error

    def write_info(self) -> None:
        """Write down what the parts will be made of."""
        atomic_write(self.parts_folder / JOB_FILE, self.info.model_dump_json(indent=1) + "\n")

    @property
    def is_finished(self) -> bool:
        """Whether this job, as one of many, has written its output."""
        mark = self.parts_folder / FINISHED_FILE
        if not (self.is_one_of_many and self.target.is_file() and mark.is_file()):
            return False
        written = self.written_info()
        is_same = written is not None and not written.differences(self.info)
        return is_same and mark.read_text(encoding="utf-8") == _state(self.target)

    def mark_finished(self, complete: Path) -> None:
        """Write down, of one of many, that this file is the output, under whose name it comes next."""
        if self.is_one_of_many:
            atomic_write(self.parts_folder / FINISHED_FILE, _state(complete))

    def remove_parts(self, *kept: str) -> None:
        """Remove everything but ``kept`` and locks, which other processes may hold; last what parts follow from."""
        for path in sorted(self.parts_folder.iterdir(), key=lambda path: path.name == JOB_FILE):
            if path.name not in kept and not path.name.startswith(LOCK):
                path.unlink()

    def discard(self) -> None:
        """Remove all parts, and their folder."""
        self.remove_parts()
        shutil.rmtree(self.parts_folder)

    def finish(self) -> None:
        """Remove what the output was put together from; of many, leave what says that it is complete."""
        if self.is_one_of_many:
            self.remove_parts(JOB_FILE, FINISHED_FILE)
        else:
            self.discard()

    def _part_info_path(self, index: int) -> Path:
        return self.parts_folder / f"{index:06d}.json"


def _state(path: Path) -> str:
    """Return the size and the time of a file, which one that is written later does not share; renaming keeps both."""
    found = path.stat()
    return f"{found.st_size} {found.st_mtime_ns}"
