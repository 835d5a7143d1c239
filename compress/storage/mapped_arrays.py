"""Arrays of numbers in memory-mapped files: they are streamed to disk once, and take no memory but for what is read."""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

BUFFERED = 1 << 18
"""Numbers of an array that are written, or yielded, together."""


def map_file(path: Path) -> mmap.mmap | None:
    """Map a file for reading; None if it is empty, which cannot be mapped."""
    with path.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else None


def release_pages(pages: mmap.mmap | None) -> None:
    """Release the pages that were read: they stay in the system's page cache, but not in this process's memory.

    Without this, a process that reads all of a large file now and then seems to need that much memory.
    """
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


class ArrayWriter:
    """Writes numbers to a file as they come; the file is complete when the block ends."""

    def __init__(self, path: Path, dtype: str) -> None:
        """Write numbers of a numpy ``dtype``, in the order of bytes of this machine."""
        self._stream = path.open("wb")
        self._buffer = array(np.dtype(dtype).char)

    def extend(self, numbers: Iterable[Any]) -> None:
        """Append numbers; one that the type does not hold is an error."""
        self._buffer.extend(numbers)
        if len(self._buffer) > BUFFERED:
            self._flush()

    def _flush(self) -> None:
        self._buffer.tofile(self._stream)
        del self._buffer[:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with self._stream:
            if error is None:
                self._flush()


class MappedArray:
    """Numbers in a memory-mapped file, in rows of ``columns``."""

    def __init__(self, path: Path, dtype: str, columns: int = 1) -> None:
        self._pages = map_file(path)
        values = np.frombuffer(self._pages or b"", dtype)
        self.values: NDArray[Any] = values if columns == 1 else values.reshape(-1, columns)

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield all rows, a block at a time."""
        for start in range(0, len(self.values), BUFFERED):
            yield self.values[start : start + BUFFERED]
            self.release()

    def release(self) -> None:
        """Release the pages that were read."""
        release_pages(self._pages)


class RaggedArray(MappedArray):
    """Lists of numbers of different lengths, end to end in one file; or one number each."""

    def __init__(self, path: Path, dtype: str, lengths: NDArray[np.int64], is_scalar: bool) -> None:
        """Open a file; ``lengths`` are of the lists, for numbers ones."""
        super().__init__(path, dtype)
        if len(self.values) != lengths.sum():
            raise ValueError(f"{path} holds {len(self.values)} numbers where its index gives {lengths.sum()}")
        self._ends: NDArray[np.int64] | None = None if is_scalar else np.cumsum(lengths)
        self.lengths = lengths
        self.is_scalar = is_scalar

    def __getitem__(self, index: int) -> Any:
        if self._ends is None:
            return self.values[index].item()
        end = self._ends[index]
        return self.values[end - self.lengths[index] : end]

    def share_lengths(self, other: RaggedArray) -> None:
        """Use the same list of lengths as another array of as many lists, where they are equal."""
        if self._ends is not None and np.array_equal(self.lengths, other.lengths):
            self.lengths, self._ends = other.lengths, other._ends


class RaggedWriter(ArrayWriter):
    """Writes lists of numbers, or one number each."""

    def __init__(self, path: Path, first: Any) -> None:
        """Write values like the ``first``, which is not yet added: lists or numbers, floats or integers."""
        self._path, self._is_scalar = path, not isinstance(first, (list, tuple))
        sample = first if self._is_scalar else next(iter(first), 0)
        self._dtype = "f" if isinstance(sample, float) else "i"
        self._lengths = array("q")
        super().__init__(path, self._dtype)

    def add(self, value: Any) -> None:
        """Append a list or number."""
        values = (value,) if self._is_scalar else value
        self.extend(values)
        self._lengths.append(len(values))

    def open(self) -> RaggedArray:
        """Open what was written, once the block has ended."""
        lengths = np.array(self._lengths, dtype=np.int64)
        if self._is_scalar:
            lengths = np.broadcast_to(np.int64(1), lengths.shape)
        return RaggedArray(self._path, self._dtype, lengths, self._is_scalar)
