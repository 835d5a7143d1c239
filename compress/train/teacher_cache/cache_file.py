"""Files of cached tensors: values of each example, such as a layer's hidden states or logits.

Values of real tokens are stored consecutively in their original precision, at offsets that follow from the examples'
lengths; another file holds one byte per example that is set once all its values are present. Files are sparse where
nothing was written, so they use no more disk than their content. They are read through a memory map but written with
pwrite: a full disk is then an error, while through a map it would end the process.
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

Indices = NDArray[np.int64]

BITS: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.int8),
    2: np.dtype(np.int16),
    4: np.dtype(np.int32),
    8: np.dtype(np.int64),
}
"""Integer types by size in bytes, to hold the bits of any type: numpy has no bfloat16."""


@dataclass(frozen=True)
class TensorFormat:
    """Type and shape of the values of one example."""

    dtype: str
    """Name of a torch type: `bfloat16`."""
    shape: tuple[int, ...]
    """Shape per token, or of the whole example."""
    pieces: bool
    """Whether there are values per token."""

    @classmethod
    def of(cls, tensor: Tensor, pieces: bool) -> TensorFormat:
        """Return the format of a batch's values (examples, [tokens,] ...)."""
        return cls(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape[2 if pieces else 1 :]), pieces)

    @cached_property
    def torch_dtype(self) -> torch.dtype:
        """The torch type of the values."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    @property
    def bits(self) -> np.dtype[Any]:
        """The integer type of the same size."""
        return BITS[self.torch_dtype.itemsize]

    @property
    def item_bytes(self) -> int:
        """Bytes per token, or of the whole example."""
        return self.torch_dtype.itemsize * math.prod(self.shape)

    def offset(self, example: int, ends: Indices) -> int:
        """Return the offset of an example in bytes; ``ends`` are the cumulative token counts of the examples."""
        return self.item_bytes * (_tokens_before(ends, example) if self.pieces else example)


class CachedTensor:
    """The cached values of one tensor for the first ``len(ends)`` examples."""

    def __init__(self, path: Path, form: TensorFormat, ends: Indices) -> None:
        """``ends`` are the cumulative token counts of the examples; one array is shared by all tensors."""
        self.form = form
        self._ends = ends
        self._stream, self._map = _open_sparse(self, path, form.offset(len(ends), ends))

    def has_slot(self, index: Indices) -> NDArray[np.bool_]:
        """Return which of these examples can be stored."""
        return index < len(self._ends)

    def write(self, index: Indices, values: Tensor) -> None:
        """Write the values (examples, [tokens,] ...) of these examples, which must have slots."""
        for example, bits in zip(index.tolist(), as_bits(values), strict=True):
            _write(self._stream, self._without_padding(bits, example), self.form.offset(example, self._ends))

    def read(self, index: Indices, width: int) -> NDArray[Any]:
        """Return the bits of these examples, which must have slots, padded with zeros to ``width``."""
        shape = (len(index), width, *self.form.shape) if self.form.pieces else (len(index), *self.form.shape)
        values = np.zeros(shape, self.form.bits)
        for example, target in zip(index.tolist(), values, strict=True):
            self._read_into(target, example)
        release_pages(self._map)
        return values

    def _read_into(self, target: NDArray[Any], example: int) -> None:
        target, start = self._without_padding(target, example), self.form.offset(example, self._ends)
        flat = np.frombuffer(self._map or b"", self.form.bits, count=target.size, offset=start)
        target[...] = flat.reshape(target.shape)

    def _without_padding(self, values: NDArray[Any], example: int) -> NDArray[Any]:
        """Return an example's values without padding."""
        if not self.form.pieces:
            return values
        return values[: _tokens_before(self._ends, example + 1) - _tokens_before(self._ends, example)]


class PresenceFlags:
    """One flag per example, visible to all processes that share the file: whether its values are present."""

    def __init__(self, path: Path, count: int) -> None:
        self._stream, bytes_map = _open_sparse(self, path, count)
        self._flags: NDArray[np.uint8] = np.frombuffer(bytes_map or b"", np.uint8)

    def present(self, index: Indices) -> NDArray[np.bool_]:
        """Return which of these examples are present."""
        present = index < len(self._flags)
        present[present] = self._flags[index[present]] != 0
        return present

    def missing(self, index: Indices) -> NDArray[np.bool_]:
        """Return which of these examples have a slot but are not present."""
        return (index < len(self._flags)) & ~self.present(index)

    def add(self, index: Indices) -> None:
        """Mark these examples as present."""
        for example in index.tolist():
            _write(self._stream, b"\1", example)


def as_bits(tensor: Tensor) -> NDArray[Any]:
    """Return the bits of a tensor as integers, on the CPU."""
    contiguous = tensor.detach().cpu().contiguous()
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[contiguous.element_size()]
    bits: NDArray[Any] = contiguous.view(integer).numpy()
    return bits


def _tokens_before(ends: Indices, count: int) -> int:
    """Return the number of tokens of the first ``count`` examples."""
    return int(ends[count - 1]) if count else 0


def _open_sparse(owner: object, path: Path, size: int) -> tuple[int, mmap.mmap | None]:
    """Open or create a file of this size and map it; it is closed when its owner is garbage-collected."""
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
