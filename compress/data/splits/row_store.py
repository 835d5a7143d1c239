"""Canonical rows on disk: one JSON object a line and an index of where each line starts.

People can read the file, any kind's fields fit in it, and it is memory-mapped: a role of millions of rows costs no
memory until its rows are looked at, and little then: pages that were read are let go of.
"""

from __future__ import annotations

import json
import mmap
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.data.splits.mmap_arrays import release_pages
from compress.errors import DataError
from compress.tasks.base import Row
from compress.tasks.parsing.lazy_rows import LazyRows

HELD = 2**22
"""Bytes that are read before the pages behind them are let go of."""


def rows_file(folder: Path, role: str) -> Path:
    """Where a role's rows stand."""
    return folder / f"{role}.jsonl"


def index_file(folder: Path, role: str) -> Path:
    """Where the starts of a role's lines stand."""
    return folder / f"{role}.index.npy"


class RowWriter:
    """Writes one role; the index follows when it is closed."""

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        if error is None:
            np.save(self._index, np.array(self._starts, dtype=np.int64))


class StoredRows(LazyRows):
    """The rows of one role, parsed when they are looked at."""

    def __init__(self, folder: Path, role: str) -> None:
        path = rows_file(folder, role)
        try:
            self._starts: NDArray[np.int64] = np.load(index_file(folder, role), mmap_mode="r")
            with path.open("rb") as stream:
                self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise DataError(f"the prepared rows of {role} in {folder} cannot be read: {error}.") from error
        if len(self._bytes) != int(self._starts[-1]):
            raise DataError(f"{path} is not as long as its index says: it was changed or cut off.")
        self._held = 0

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __iter__(self) -> Iterator[Row]:
        return map(self.row, range(len(self)))

    def row(self, place: int) -> Row:
        """One line, parsed."""
        line = self._bytes[int(self._starts[place]) : int(self._starts[place + 1])]
        self._held += len(line)
        if self._held > HELD:
            release_pages(self._bytes)
            self._held = 0
        row: dict[str, Any] = json.loads(line)
        return row
