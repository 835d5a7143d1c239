"""Canonical rows on disk: one JSON object per line and an index of where each line starts.

People can read the file, any kind's fields fit in it, and it is memory-mapped: millions of rows take no memory until
they are read, and little then, since pages that were read are released. Every row is stored once: a role is an array
of the numbers of its rows.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from array import array
from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError
from compress.storage.file_digests import file_digest
from compress.storage.file_names import STEPS_FOLDER
from compress.storage.mapped_arrays import release_pages
from compress.tasks.base import LazyRows, Row

ROWS = "rows"
"""The name under which the rows are written that `write_subset` chooses from."""
RELEASE_AFTER = 2**22
"""Bytes that are read before their pages are released."""

_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def rows_file(folder: Path, name: str) -> Path:
    """Return the path of the rows of a name."""
    return folder / f"{name}.jsonl"


def index_file(folder: Path, name: str) -> Path:
    """Return the path of the starts of a name's lines."""
    return folder / f"{name}.index.npy"


def subset_file(folder: Path, name: str) -> Path:
    """Return the path of the numbers of a name's rows among those of `ROWS`."""
    return folder / f"{name}.rows.npy"


def write_subset(folder: Path, name: str, numbers: NDArray[np.int64]) -> None:
    """Give the rows of `ROWS` with these numbers, from 0, a name of their own."""
    np.save(subset_file(folder, name), numbers)


def remove_rows(folder: Path, name: str) -> None:
    """Remove the rows of a name, which no other name has a subset of."""
    for path in (rows_file(folder, name), index_file(folder, name)):
        path.unlink()


class RowWriter:
    """Writes the rows of one name; the index is written when it is closed."""

    def __init__(self, folder: Path, name: str) -> None:
        self._index = index_file(folder, name)
        self._stream = rows_file(folder, name).open("wb")
        self._starts = array("q", [0])

    def add(self, row: Row) -> Row:
        """Append a row, and return it."""
        line = _to_json(row).encode() + b"\n"
        self._stream.write(line)
        self._starts.append(self._starts[-1] + len(line))
        return row

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stream.close()
        if error is None:
            np.save(self._index, np.frombuffer(self._starts, np.int64))


class StoredRows(LazyRows):
    """The rows of one name, parsed on access."""

    def __init__(self, folder: Path, name: str, without: Collection[str] = ()) -> None:
        """Open the rows that were written under ``name``, or its subset of `ROWS`; they lack the fields ``without``."""
        self._numbers: NDArray[np.int64] | None = None
        self._without = without
        try:
            if subset_file(folder, name).exists():
                self._numbers, name = np.load(subset_file(folder, name), mmap_mode="r"), ROWS
            self._path = path = rows_file(folder, name)
            self._starts: NDArray[np.int64] = np.load(index_file(folder, name), mmap_mode="r")
            with path.open("rb") as stream:
                self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise DataError(f"the prepared rows of {name} in {folder} cannot be read: {error}.") from error
        if len(self._bytes) != int(self._starts[-1]):
            raise DataError(f"{path} does not have the length that its index gives: it was changed or truncated.")
        self._unreleased = 0

    def __len__(self) -> int:
        return len(self._starts) - 1 if self._numbers is None else len(self._numbers)

    @property
    def steps(self) -> Path | None:
        """The folder of a run's steps where the rows are one's result; None elsewhere."""
        steps = self._path.parent.parent
        return steps if steps.name == STEPS_FOLDER else None

    def digest(self) -> str:
        """Return a digest of all rows."""
        digest = file_digest(self._path)
        if self._numbers is None:
            return digest
        return hashlib.sha256(digest.encode() + self._numbers.tobytes()).hexdigest()

    def row(self, index: int) -> Row:
        """Return one line, parsed."""
        number = index if self._numbers is None else int(self._numbers[index])
        line = self._bytes[int(self._starts[number]) : int(self._starts[number + 1])]
        self._unreleased += len(line)
        if self._unreleased > RELEASE_AFTER:
            release_pages(self._bytes)
            self._unreleased = 0
        row: Row = json.loads(line)
        return {name: value for name, value in row.items() if name not in self._without} if self._without else row
