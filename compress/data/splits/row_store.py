"""Canonical rows on disk: one JSON object per line and an index of where each line starts.

People can read the file, any kind's fields fit in it, and it is memory-mapped: millions of rows take no memory until
they are read, and little then, since pages that were read are released.
"""

from __future__ import annotations

import json
import mmap
from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.data.splits.mmap_arrays import release_pages
from compress.errors import DataError
from compress.storage.file_digests import file_digest
from compress.storage.file_names import STEPS_FOLDER
from compress.tasks.base import LazyRows, Row

RELEASE_AFTER = 2**22
"""Bytes that are read before their pages are released."""


def rows_file(folder: Path, role: str) -> Path:
    """Return the path of a role's rows."""
    return folder / f"{role}.jsonl"


def index_file(folder: Path, role: str) -> Path:
    """Return the path of the starts of a role's lines."""
    return folder / f"{role}.index.npy"


class RowWriter:
    """Writes one role; the index is written when it is closed."""

    def __init__(self, folder: Path, role: str) -> None:
        self._index = index_file(folder, role)
        self._stream = rows_file(folder, role).open("wb")
        self._starts = array("q", [0])

    def add(self, row: Row) -> None:
        """Append a row."""
        line = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        self._stream.write(line)
        self._starts.append(self._starts[-1] + len(line))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stream.close()
        if error is None:
            np.save(self._index, np.array(self._starts, dtype=np.int64))


class StoredRows(LazyRows):
    """The rows of one role, parsed on access."""

    def __init__(self, folder: Path, role: str) -> None:
        self._path = path = rows_file(folder, role)
        try:
            self._starts: NDArray[np.int64] = np.load(index_file(folder, role), mmap_mode="r")
            with path.open("rb") as stream:
                self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise DataError(f"the prepared rows of {role} in {folder} cannot be read: {error}.") from error
        if len(self._bytes) != int(self._starts[-1]):
            raise DataError(f"{path} does not have the length that its index gives: it was changed or truncated.")
        self._unreleased = 0

    def __len__(self) -> int:
        return len(self._starts) - 1

    @property
    def steps(self) -> Path | None:
        """The folder of a run's steps where the rows are one's result; None elsewhere."""
        steps = self._path.parent.parent
        return steps if steps.name == STEPS_FOLDER else None

    def digest(self) -> str:
        """Return a digest of all rows."""
        return file_digest(self._path)

    def row(self, index: int) -> Row:
        """Return one line, parsed."""
        line = self._bytes[int(self._starts[index]) : int(self._starts[index + 1])]
        self._unreleased += len(line)
        if self._unreleased > RELEASE_AFTER:
            release_pages(self._bytes)
            self._unreleased = 0
        return json.loads(line)
