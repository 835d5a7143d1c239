"""One thing that a teacher says of every example, kept in a file: a layer's hidden states, or its logits.

Values of real pieces alone stand end to end, in the precision they were given in, at places that follow from the
examples' lengths; a byte an example in a second file tells whether its values stand. The files have holes where nothing
was written, so they take no more of the disk than what they hold. They are read through a map, and written without
one: a disk that is full is an error then, and through a map it would end the process.
"""

from __future__ import annotations

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

from compress.data.mapped import release

Places = NDArray[np.int64]

BITS: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.int8),
    2: np.dtype(np.int16),
    4: np.dtype(np.int32),
    8: np.dtype(np.int64),
}
"""By their size in bytes, numbers that hold any other's bits: numpy knows no bfloat16."""


@dataclass(frozen=True)
class Form:
    """What is kept of one example."""

    dtype: str
    """In torch's words: `bfloat16`."""
    shape: tuple[int, ...]
    """Of the values of one piece, or of those of the whole example."""
    pieces: bool
    """Whether there are values for each of the example's pieces."""

    @classmethod
    def of(cls, tensor: Tensor, pieces: bool) -> Form:
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

    def sizes(self, lengths: Places) -> Places:
        """Bytes of each of these examples."""
        each = self.torch_dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))
        return lengths * each if self.pieces else np.full_like(lengths, each)


class Kept:
    """The values of examples 0 to ``len(lengths)``; those beyond are never kept. Several processes may share it."""

    def __init__(self, path: Path, form: Form, lengths: Places) -> None:
        self.form = form
        self._ends = np.cumsum(form.sizes(lengths))
        self._lengths = lengths
        total = int(self._ends[-1]) if len(lengths) else 0
        self._values, self._map = _opened(path.with_name(f"{path.name}.values"), total)
        self._flags, told = _opened(path.with_name(f"{path.name}.stands"), len(lengths))
        self._told: NDArray[np.uint8] = np.frombuffer(told, np.uint8) if told else np.zeros(0, np.uint8)
        weakref.finalize(self, _close, self._values, self._flags)

    def stands(self, index: Places) -> NDArray[np.bool_]:
        """Which of these examples are here."""
        found = index < len(self._lengths)
        found[found] = self._told[index[found]] != 0
        return found

    def lacks(self, index: Places) -> NDArray[np.bool_]:
        """Which of these examples have a place here and are not there yet."""
        return (index < len(self._lengths)) & ~self.stands(index)

    def put(self, index: Places, values: Tensor) -> None:
        """Keep the values (examples, [pieces,] ...) of these examples: all values first, and then that they stand."""
        bits = as_bits(values)
        for example, each in zip(index.tolist(), bits, strict=True):
            trimmed = each[: self._lengths[example]] if self.form.pieces else each
            _write(self._values, trimmed, self._start(example))
        for example in index.tolist():
            _write(self._flags, b"\1", example)

    def get(self, index: Places, width: int) -> NDArray[Any]:
        """The bits of all of these examples that are here, padded with zeros to ``width``; zeros for others."""
        shape = (len(index), width, *self.form.shape) if self.form.pieces else (len(index), *self.form.shape)
        found = np.zeros(shape, self.form.bits)
        for place in np.flatnonzero(self.stands(index)):
            self._read(int(index[place]), found[place])
        release(self._map)
        return found

    def _read(self, example: int, into: NDArray[Any]) -> None:
        count = int(self._lengths[example]) if self.form.pieces else 1
        into = into[:count] if self.form.pieces else into
        assert self._map is not None
        flat = np.frombuffer(self._map, self.form.bits, count=into.size, offset=self._start(example))
        into[...] = flat.reshape(into.shape)

    def _start(self, example: int) -> int:
        return int(self._ends[example - 1]) if example else 0


def as_bits(tensor: Tensor) -> NDArray[Any]:
    """The bits of a tensor on the CPU."""
    whole = tensor.detach().cpu().contiguous()
    same = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[whole.element_size()]
    found: NDArray[Any] = whole.view(same).numpy()
    return found


def _opened(path: Path, size: int) -> tuple[int, mmap.mmap | None]:
    """A file of this size, full of zeros where it is new, and a map of it."""
    stream = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    if os.fstat(stream).st_size != size:
        os.ftruncate(stream, size)
    return stream, mmap.mmap(stream, size, access=mmap.ACCESS_READ) if size else None


def _write(stream: int, values: Any, at: int) -> None:
    left = memoryview(values).cast("B")
    while left:
        written = os.pwrite(stream, left, at)
        left, at = left[written:], at + written


def _close(*streams: int) -> None:
    for stream in streams:
        os.close(stream)
