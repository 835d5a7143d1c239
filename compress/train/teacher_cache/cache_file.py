"""One thing that a teacher says of every example, kept in a file: a layer's hidden states, or its logits.

Values of real pieces alone present end to end, in the precision they were given in, at places that follow from the
examples' lengths; in one more file a byte an example tells whether all about it stands. The files have holes where
nothing was written, so they take no more of the disk than what they hold. They are read through a map, and written
without one: a disk that is full is an error then, and through a map it would end the process.
"""

from __future__ import annotations

import math
import mmap
import os
import weakref
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compress.data.splits.mmap_arrays import release_pages

Places = NDArray[np.int64]

BITS: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.int8),
    2: np.dtype(np.int16),
    4: np.dtype(np.int32),
    8: np.dtype(np.int64),
}
"""By their size in bytes, numbers that hold any other's bits: numpy knows no bfloat16."""


@dataclass(frozen=True)
class TensorFormat:
    """What is kept of one example."""

    dtype: str
    """In torch's words: `bfloat16`."""
    shape: tuple[int, ...]
    """Of the values of one piece, or of those of the whole example."""
    pieces: bool
    """Whether there are values for each of the example's pieces."""

    @classmethod
    def of(cls, tensor: Tensor, pieces: bool) -> TensorFormat:
        """The form of a batch's values (examples, [pieces,] ...)."""
        return cls(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape[2 if pieces else 1 :]), pieces)

    @cached_property
    def torch_dtype(self) -> torch.dtype:
        """What a tensor of these values is made of."""
        found: torch.dtype = getattr(torch, self.dtype)
        return found

    @property
    def bits(self) -> np.dtype[Any]:
        """Numbers of the same size."""
        return BITS[self.torch_dtype.itemsize]

    @property
    def each(self) -> int:
        """Bytes of the values of one piece, or of those of the whole example."""
        return self.torch_dtype.itemsize * math.prod(self.shape)

    def before(self, example: int, ends: Places) -> int:
        """Bytes of all examples before this one; ``ends`` are the pieces of the examples up to and with each."""
        return self.each * (_ended(ends, example) if self.pieces else example)


class CachedTensor:
    """One thing about examples 0 to ``len(ends)``; it has no place for others."""

    def __init__(self, path: Path, form: TensorFormat, ends: Places) -> None:
        """``ends`` are the pieces of the examples up to and with each: one array for all things that are kept."""
        self.form = form
        self._ends = ends
        self._stream, self._map = _opened(self, path, form.before(len(ends), ends))

    def has_slot(self, index: Places) -> NDArray[np.bool_]:
        """For which of these examples."""
        return index < len(self._ends)

    def put(self, index: Places, values: Tensor) -> None:
        """Write the values (examples, [pieces,] ...) of these examples, all of which have a place."""
        for example, each in zip(index.tolist(), as_bits(values), strict=True):
            _write(self._stream, self._real(each, example), self.form.before(example, self._ends))

    def get(self, index: Places, width: int) -> NDArray[Any]:
        """The bits of these examples, all of which have a place, padded with zeros to ``width``."""
        shape = (len(index), width, *self.form.shape) if self.form.pieces else (len(index), *self.form.shape)
        found = np.zeros(shape, self.form.bits)
        for example, each in zip(index.tolist(), found, strict=True):
            self._read(example, each)
        release_pages(self._map)
        return found

    def _read(self, example: int, into: NDArray[Any]) -> None:
        into, start = self._real(into, example), self.form.before(example, self._ends)
        flat = np.frombuffer(self._map or b"", self.form.bits, count=into.size, offset=start)
        into[...] = flat.reshape(into.shape)

    def _real(self, values: NDArray[Any], example: int) -> NDArray[Any]:
        """An example's values without those of padding."""
        if not self.form.pieces:
            return values
        return values[: _ended(self._ends, example + 1) - _ended(self._ends, example)]


class PresenceFlags:
    """Which of so many examples present; processes that share the file see each other's."""

    def __init__(self, path: Path, count: int) -> None:
        self._stream, told = _opened(self, path, count)
        self._told: NDArray[np.uint8] = np.frombuffer(told or b"", np.uint8)

    def present(self, index: Places) -> NDArray[np.bool_]:
        """Which of these examples do."""
        found = index < len(self._told)
        found[found] = self._told[index[found]] != 0
        return found

    def missing(self, index: Places) -> NDArray[np.bool_]:
        """Which of these examples could present and do not."""
        return (index < len(self._told)) & ~self.present(index)

    def add(self, index: Places) -> None:
        """From now on these present."""
        for example in index.tolist():
            _write(self._stream, b"\1", example)


def as_bits(tensor: Tensor) -> NDArray[Any]:
    """The bits of a tensor on the CPU."""
    whole = tensor.detach().cpu().contiguous()
    same = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[whole.element_size()]
    found: NDArray[Any] = whole.view(same).numpy()
    return found


def _ended(ends: Places, count: int) -> int:
    """Pieces of the first so many examples."""
    return int(ends[count - 1]) if count else 0


def _opened(owner: object, path: Path, size: int) -> tuple[int, mmap.mmap | None]:
    """A file of this size, full of zeros where it is new, and a map of it; it is closed when its owner goes."""
    stream = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    weakref.finalize(owner, os.close, stream)
    if os.fstat(stream).st_size != size:
        os.ftruncate(stream, size)
    return stream, mmap.mmap(stream, size, access=mmap.ACCESS_READ) if size else None


def _write(stream: int, values: Any, at: int) -> None:
    left = memoryview(values).cast("B")
    while left:
        written = os.pwrite(stream, left, at)
        left, at = left[written:], at + written
