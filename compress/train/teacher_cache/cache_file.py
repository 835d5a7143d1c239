"""Files of cached tensors: values of each example, such as a layer's hidden states or logits, and the cache plan.

Values of real tokens are stored consecutively in their original precision, at offsets that follow from the examples'
lengths. Files are sparse where nothing was written, so they use no more disk than their content. They are read through
a memory map but written with pwrite: a full disk is then an error, while through a map it would end the process.

The plan says which tensors are cached for how many examples, from shapes, lengths and the disk budget. It is computed
once and stored with the files, so that a resumed training follows it whatever else has been written to the disk since.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from compress.storage.atomic_write import atomic_write
from compress.storage.mapped_arrays import release_pages

Indices = NDArray[np.int64]

FILE = "plan.json"

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""On Linux, an id that changes at every boot."""


LAYER = "layer "
"""What the names of parts of layers start with; those of outputs do not."""


class TensorFormat(BaseModel):
    """Type and shape of the values of one example, and the number of examples that are cached."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: str
    """Name of a torch type: `bfloat16`."""
    shape: tuple[int, ...]
    """Shape per token, or of the whole example."""
    per_token: bool
    examples: int = 0
    """Cached examples, counted from the first."""

    @classmethod
    def of(cls, tensor: Tensor, per_token: bool, examples: int = 0) -> TensorFormat:
        """Return the format of a batch's values (examples, [tokens,] ...)."""
        dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape[2 if per_token else 1 :])
        return cls(dtype=dtype, shape=shape, per_token=per_token, examples=examples)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The torch type of the values."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    @property
    def item_bytes(self) -> int:
        """Bytes per token, or of the whole example."""
        return self.torch_dtype.itemsize * math.prod(self.shape)

    def size(self, ends: Indices) -> int:
        """Return the bytes of the cached values; ``ends`` are the cumulative token counts of all examples."""
        tokens = int(ends[self.examples - 1]) if self.examples else 0
        return self.item_bytes * (tokens if self.per_token else self.examples)


class CachedTensor:
    """The cached values of one tensor; its length is the number of examples that it has space for."""

    def __init__(self, path: Path, form: TensorFormat, ends: Indices, *, create: bool = False) -> None:
        """Open or create a file; ``ends`` are the cumulative token counts of all examples.

        Raises OSError for a file of another size, which would be read as zeros.
        """
        self.form, self._ends = form, ends
        self._stream = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o644)
        weakref.finalize(self, os.close, self._stream)
        size = form.size(ends)
        if create:
            os.ftruncate(self._stream, size)
        elif os.fstat(self._stream).st_size != size:
            raise OSError(errno.EIO, "a file of cached values has another size", str(path))
        self._map = mmap.mmap(self._stream, size, access=mmap.ACCESS_READ) if size else b""

    def __len__(self) -> int:
        return self.form.examples

    def write(self, index: Indices, values: Tensor) -> None:
        """Write the values (examples, [tokens,] ...) of these examples."""
        with_tokens = values if self.form.per_token else values[:, None]
        for example, bits in zip(index.tolist(), as_bits(with_tokens), strict=True):
            start, count = self._items(example)
            left, at = memoryview(bits[:count]).cast("B"), start * self.form.item_bytes
            while left:
                written = os.pwrite(self._stream, left, at)
                left, at = left[written:], at + written

    def read(self, index: Indices, width: int) -> Tensor:
        """Return the values of these examples, padded with zeros to ``width`` tokens."""
        shape = (len(index), width if self.form.per_token else 1, *self.form.shape)
        values = np.zeros(shape, f"i{self.form.torch_dtype.itemsize}")  # numpy has no bfloat16
        for example, target in zip(index.tolist(), values, strict=True):
            start, count = self._items(example)
            numbers, at = count * math.prod(self.form.shape), start * self.form.item_bytes
            target[:count] = np.frombuffer(self._map, values.dtype, numbers, at).reshape(count, *self.form.shape)
        if isinstance(self._map, mmap.mmap):
            release_pages(self._map)
        tensor = torch.from_numpy(values).view(self.form.torch_dtype)
        return tensor if self.form.per_token else tensor[:, 0]

    def _items(self, example: int) -> tuple[int, int]:
        """Return the start and the number of an example's items: of its tokens, or of one."""
        if not self.form.per_token:
            return example, 1
        start = int(self._ends[example - 1]) if example else 0
        return start, int(self._ends[example]) - start


def as_bits(tensor: Tensor) -> NDArray[Any]:
    """Return the bits of a tensor as integers, on the CPU."""
    contiguous = tensor.detach().cpu().contiguous()
    bits: NDArray[Any] = contiguous.view(getattr(torch, f"int{8 * contiguous.element_size()}")).numpy()
    return bits


class CachePlan(BaseModel):
    """The formats of all cached tensors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[2] = 2
    boot: str
    outputs: Mapping[str, TensorFormat]
    """By name; without cached examples where the budget is too small."""
    layers: Mapping[str, TensorFormat]
    """Parts of layers, as `layer_key` names them."""

    @classmethod
    def within(
        cls, budget: int, outputs: Mapping[str, TensorFormat], layers: Mapping[str, TensorFormat], ends: Indices
    ) -> CachePlan:
        """Return the plan for a ``budget`` of bytes.

        ``outputs`` have all examples; of the ``layers`` as many of the first examples are cached as fit. ``ends`` are
        the cumulative token counts of the examples.
        """
        left, count = budget - sum(form.size(ends) for form in outputs.values()), 0
        per_token = sum(form.item_bytes for form in layers.values())
        if left < 0:
            outputs = {key: form.model_copy(update={"examples": 0}) for key, form in outputs.items()}
        elif per_token:
            count = int(np.searchsorted(ends, left // per_token, side="right"))
        layers = {key: form.model_copy(update={"examples": count}) for key, form in layers.items()}
        return cls(boot=boot(), outputs=outputs, layers=layers)

    @property
    def examples(self) -> int:
        """The number of examples with cached outputs: all or none."""
        return next(iter(self.outputs.values())).examples

    def tensors(self) -> dict[str, TensorFormat]:
        """Return the formats of all tensors."""
        return {**self.outputs, **self.layers}

    def write(self, folder: Path) -> None:
        """Write the plan to the folder of its files."""
        atomic_write(folder / FILE, self.model_dump_json(indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path) -> CachePlan | None:
        """Read the plan; None where there is none, or none that can be used."""
        try:
            plan = cls.model_validate_json((folder / FILE).read_bytes())
        except (OSError, ValueError):  # missing, damaged, or of another version
            return None
        return plan if plan.boot == boot() else None


def layer_key(layer: int, part: str) -> str:
    """Return the name of one part of a layer."""
    return f"{LAYER}{layer} {part}"


def boot() -> str:
    """Return an id of the current boot: files written before it may be incomplete after a power cut."""
    return BOOT.read_text().strip() if BOOT.is_file() else str(round(psutil.boot_time()))
