"""Lists of numbers of different lengths in memory-mapped files."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.data.splits.mmap_arrays import map_file, release_pages

BUFFERED = 1 << 18
"""Numbers of each field that are buffered while writing."""


class RaggedArray:
    """Lists of numbers of different lengths, end to end in one memory-mapped file; or one number each."""

    def __init__(self, path: Path, lengths: NDArray[np.int64], dtype: str, scalar: bool) -> None:
        """Open a file of a `FieldWriter`; ``lengths`` are of the lists, for numbers ones."""
        self._pages = map_file(path)
        self.values: NDArray[Any] = np.frombuffer(self._pages or b"", dtype)
        if len(self.values) != lengths.sum():
            raise ValueError(f"{path} holds {len(self.values)} numbers where its index gives {lengths.sum()}")
        self._ends: NDArray[np.int64] | None = None if scalar else np.cumsum(lengths)
        self.lengths = lengths
        self.is_scalar = scalar

    def __getitem__(self, index: int) -> Any:
        if self._ends is None:
            return self.values[index].item()
        end = self._ends[index]
        return self.values[end - self.lengths[index] : end]

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield all values, a block at a time."""
        for start in range(0, len(self.values), BUFFERED):
            yield self.values[start : start + BUFFERED]
            self.release()

    def release(self) -> None:
        """Release the pages that were read."""
        release_pages(self._pages)

    def share_lengths(self, other: RaggedArray) -> None:
        """Use the same list of lengths as another field of the same examples, where they are equal."""
        if self._ends is not None and np.array_equal(self.lengths, other.lengths):
            self.lengths, self._ends = other.lengths, other._ends


class FieldWriter:
    """Writes one field of the examples; ``files`` closes its file."""

    def __init__(self, path: Path, files: ExitStack, first: Any) -> None:
        self._path, self._stream = path, files.enter_context(path.open("wb"))
        self._scalar = not isinstance(first, (list, tuple))
        sample = first if self._scalar else next(iter(first), 0)
        self._buffer = array("f" if isinstance(sample, float) else "i")
        self._lengths = array("q")

    def add(self, value: Any) -> None:
        """Append one example's value."""
        values = (value,) if self._scalar else value
        self._buffer.extend(values)
        self._lengths.append(len(values))
        if len(self._buffer) > BUFFERED:
            self.flush()

    def flush(self) -> None:
        """Write the buffer to the file."""
        self._buffer.tofile(self._stream)
        del self._buffer[:]

    def open(self) -> RaggedArray:
        """Open the field for reading."""
        lengths = np.array(self._lengths, dtype=np.int64)
        if self._scalar:
            lengths = np.broadcast_to(np.int64(1), lengths.shape)
        return RaggedArray(self._path, lengths, self._buffer.typecode, self._scalar)
