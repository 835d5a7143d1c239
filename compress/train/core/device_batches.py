"""The batches of a training on its device; on a GPU the next one is prepared during the current update."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from compress.batch_arrays import BatchArray
from compress.tasks.model_interface import token_fills
from compress.train.objective import Examples

Indices = NDArray[np.int64]


class DeviceBatches:
    """Creates batches. The next one is known in advance, so on a GPU a thread prepares it.

    On a CPU this would gain nothing: the thread would take time from the training.
    """

    def __init__(self, examples: Examples, device: torch.device, pad_id: int = 0, multiple: int = 1) -> None:
        """Create batches of ``examples``, with widths padded to multiples of ``multiple``."""
        self._examples = examples
        self._device = device
        self._arrays = examples.arrays()
        self._on_host = {name for name, array in self._arrays.items() if array.where == "host"}
        self._pad_id, self._multiple = pad_id, multiple
        self.look_ahead = device.type == "cuda"
        """Whether batches are prepared in advance."""
        self._thread = ThreadPoolExecutor(1, "batches") if self.look_ahead else None
        self._pending: tuple[Indices, Future[dict[str, Tensor]]] | None = None

    def __call__(self, indices: Indices, next_indices: Indices | None = None) -> dict[str, Tensor]:
        """Return the batch of these examples, on the device unless declared for the host.

        ``next_indices`` are those of the next call, if known.
        """
        arrays = self._take(indices)
        if self._thread is not None and next_indices is not None:
            self._pending = next_indices, self._thread.submit(self._create, next_indices)
        # Copies from pinned memory overlap with computation; the device keeps the order.
        return {
            name: array if name in self._on_host else array.to(self._device, non_blocking=True)
            for name, array in arrays.items()
        }

    def _take(self, indices: Indices) -> dict[str, Tensor]:
        pending, self._pending = self._pending, None
        if pending is not None and np.array_equal(pending[0], indices):
            return pending[1].result()
        return self._create(indices)

    def _create(self, indices: Indices) -> dict[str, Tensor]:
        batch = {name: torch.from_numpy(array) for name, array in self._examples.batch(indices).items()}
        if self._multiple > 1:
            batch = pad_width(batch, self._arrays, self._pad_id, self._multiple)
        pinned = self._device.type == "cuda"
        return {name: tensor.pin_memory() for name, tensor in batch.items()} if pinned else batch


def pad_width(
    batch: Mapping[str, Tensor], arrays: Mapping[str, BatchArray], pad_id: int, multiple: int
) -> dict[str, Tensor]:
    """Return the batch padded to the next multiple; only arrays that are declared per token get wider."""
    more = -batch["input_ids"].shape[1] % multiple
    fills = token_fills(arrays.values(), pad_id)
    return {
        name: F.pad(tensor, (0, more), value=fills[name]) if name in fills else tensor for name, tensor in batch.items()
    }
