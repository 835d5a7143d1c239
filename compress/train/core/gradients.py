"""The gradients of one update, summed over its batches and over the processes that share them.

With the batches on their device, and the rows responsible when a loss or gradient is NaN or infinite.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.batch_arrays import BatchArray
from compress.errors import CompressError
from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import Training
from compress.tasks.kind import token_fills
from compress.train.core.distributed import Processes
from compress.train.core.optimizer import ModelAndOptimizer
from compress.train.core.shares import Replica, ShareThreads, replicate
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.objective import Batch, Examples, Objective, forward_teacher

Indices = NDArray[np.int64]


class DeviceBatches:
    """Creates batches. The next one is known in advance, so on a GPU a thread prepares it.

    On a CPU this would gain nothing: the thread would take time from the training.
    """

    def __init__(self, examples: Examples, device: torch.device, pad_id: int = 0, multiple: int = 1) -> None:
        """Create batches of ``examples``, as wide as a multiple of ``multiple``, but never wider than the longest."""
        self._examples = examples
        self._device = device
        self._arrays = examples.arrays()
        self._on_host = {name for name, array in self._arrays.items() if array.where == "host"}
        self._pad_id, self._multiple = pad_id, multiple
        self._longest = int(examples.example_lengths.max()) if multiple > 1 else 0
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
            batch = pad_width(batch, self._arrays, self._pad_id, self._multiple, self._longest)
        pinned = self._device.type == "cuda"
        return {name: tensor.pin_memory() for name, tensor in batch.items()} if pinned else batch


def pad_width(
    batch: Mapping[str, Tensor], arrays: Mapping[str, BatchArray], pad_id: int, multiple: int, longest: float = math.inf
) -> dict[str, Tensor]:
    """Return the batch padded to the next multiple, or to ``longest``; only arrays declared per token get wider."""
    width = batch["input_ids"].shape[1]
    more = int(min(-width % multiple, max(0, longest - width)))
    fills = token_fills(arrays.values(), pad_id)
    return {
        name: F.pad(tensor, (0, more), value=fills[name]) if name in fills else tensor for name, tensor in batch.items()
    }


class UpdateGradients(NamedTuple):
    """Losses and gradient norm of one update; the gradients are those of the parameters."""

    rows: int
    losses: dict[str, float]
    norm: float
    """The norm of all gradients."""
    checkpoint_due: bool
    """Whether to save a checkpoint; the main process decides, since clocks differ."""


@dataclass
class Gradients:
    """Computes gradients in which every row of an update has equal weight, whatever its batch and process."""

    objective: Objective
    batches: DeviceBatches
    schedule: UpdateSchedule
    trained: ModelAndOptimizer
    processes: Processes
    threads: ShareThreads = field(default_factory=ShareThreads)
    _replicas: list[Replica] = field(default_factory=list, init=False)
    """Those that compute the shares of a batch, where it has several."""

    @property
    def models(self) -> list[PreTrainedModel]:
        """The model and its replicas."""
        return [self.trained.model, *(replica.model for replica in self._replicas)]

    def accumulate(self, update: int, checkpoint_due: bool) -> UpdateGradients:
        """Compute the gradients of one update; ``checkpoint_due`` is this process's opinion."""
        batches = self.schedule.batches(update)
        rows = sum(len(batch) for batch in batches)
        self.trained.begin_update()
        self._begin_shares(update)
        sums: dict[str, Tensor] = {}
        is_followed = self.batches.look_ahead and update + 1 < self.schedule.total
        following = self.schedule.batches(update + 1)[0] if is_followed else None
        for batch, next_batch in zip(batches, [*batches[1:], following], strict=True):
            for name, loss in self._add_batch(batch, rows, next_batch).items():
                sums[name] = sums[name] + loss if name in sums else loss
        due = torch.full((), float(self.processes.is_main and checkpoint_due), device=self.processes.device)
        values = self.processes.sum_gradients(self.trained.parameters, torch.stack([*sums.values(), due]).float())
        norm = self.trained.norm().float()
        *losses, vote, total_norm = torch.cat([values, norm[None]]).tolist()  # the only device synchronization
        return UpdateGradients(rows, dict(zip(sums, losses, strict=True)), total_norm, vote > 0)

    def is_nonfinite(self, indices: NDArray[np.int64]) -> bool:
        """Return whether the loss of these examples is NaN or infinite, without dropout."""
        self.trained.model.train(False)
        with torch.no_grad(), self.trained.running():
            losses = self.objective(self.trained.model, self.batches(indices))
        return not all(bool(torch.isfinite(loss)) for loss in losses.values())

    def _add_batch(
        self, batch: NDArray[np.int64], rows: int, next_batch: NDArray[np.int64] | None
    ) -> dict[str, Tensor]:
        """Add the gradients of this process's share of a batch; returns its weighted losses."""
        if self._replicas:
            return self._add_shares(batch, rows)
        mine, following = self._local(batch), None if next_batch is None else self._local(next_batch)
        weight = len(mine) / rows if self.processes.rank < len(batch) else 0.0
        tensors = self.batches(mine, following)
        with self.trained.running():
            total, losses = weighted_losses(self.objective, self.trained.model, tensors, weight)
            self.trained.add_gradients(total)
        return losses

    def _begin_shares(self, update: int) -> None:
        """Create the replicas at the first update, when the model has its precision; prepare their losses."""
        if not self._replicas and self.threads.count > 1:
            with self.trained.running():
                self._replicas = [replicate(self.trained.model, self.objective) for _ in range(self.threads.count)]
        for replica in self._replicas:
            replica.objective.begin(update / self.schedule.total, update)

    def _add_shares(self, batch: NDArray[np.int64], rows: int) -> dict[str, Tensor]:
        """Add the gradients of a batch, computed by replicas in threads; returns its weighted losses."""
        parts = [batch[share :: self.threads.count] for share in range(self.threads.count)]
        tensors = [self.batches(part) for part in parts if len(part)]

        def compute(share: int) -> dict[str, Tensor]:
            if share >= len(tensors):
                return {}
            replica, weight = self._replicas[share], len(parts[share]) / rows
            with self.threads.randomness(share):
                total, losses = weighted_losses(replica.objective, replica.model, tensors[share], weight)
                total.backward()  # type: ignore[no-untyped-call]
            return losses

        computed = self.threads.run(compute)[: len(tensors)]
        self.trained.collect(self._replicas)
        return {name: torch.stack([losses[name] for losses in computed]).sum() for name in computed[0]}

    def _local(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return this process's share of a batch.

        A process without a share computes one row with weight zero, since all processes must have the same gradients.
        """
        mine = batch[self.processes.rank :: self.processes.count]
        return mine if len(mine) else batch[:1]


def weighted_losses(
    objective: Objective, model: PreTrainedModel, batch: Batch, weight: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the sum of the losses of a batch times ``weight``, and each of them without gradient."""
    losses = {name: loss.float() * weight for name, loss in objective(model, batch).items()}
    return torch.stack(list(losses.values())).sum(), {name: loss.detach() for name, loss in losses.items()}


MAX_SHOWN = 10
"""Row numbers per set in a message."""

SETS = {"train": "{} of train", "unlabelled": "{} of unlabelled", "augmented": "augmented copies of {} of train"}
"""How rows of each set are called."""

IsNonfinite = Callable[[NDArray[np.int64]], bool]
"""Whether the loss of a batch of these examples is NaN or infinite."""


def find_nonfinite(losses: Mapping[str, float], norm: float) -> str | None:
    """Return which value of an update is NaN or infinite, as text; None if none is."""
    values = {**{f"the loss {name}": loss for name, loss in losses.items()}, "the gradient's norm": norm}
    return next((f"{name} became {value}" for name, value in values.items() if not math.isfinite(value)), None)


def nan_error(
    what: str, update: int, saved: int, examples: Examples, gradients: Gradients, settings: Training
) -> CompressError:
    """Return the error that names the rows or the teacher responsible; ``saved`` is the last checkpoint's update."""
    batches = gradients.schedule.batches(update)
    rows = find_nan_rows(examples, batches, gradients.is_nonfinite)
    weight = "a smaller weight for this loss, " if isinstance(settings, Distill) else ""
    cause, hint = "", f"check these rows, or try a smaller learning_rate, {weight}precision: fp32"
    if teacher := find_nan_teacher(gradients.objective.teachers(), map(gradients.batches, batches)):
        cause = f"the outputs of {teacher} itself are not finite; "
        hint = f"check {teacher} or use another; precision: fp32 helps if its values only overflow"
    remains = f"the last checkpoint, saved after update {saved}, remains" if saved else "no checkpoint had been saved"
    return CompressError(
        f"{what} at update {update + 1} of {gradients.schedule.total}, {rows}; {cause}{remains}.", hint=hint
    )


def find_nan_rows(examples: Examples, batches: Sequence[NDArray[np.int64]], is_nonfinite: IsNonfinite) -> str:
    """Return as text the rows with a non-finite loss on their own, or else all rows of the update.

    A loss that is NaN only with dropout or together with other rows is not found row by row.
    """
    indices = np.concatenate(batches)
    alone = np.array([index for index in indices if is_nonfinite(np.array([index]))], dtype=np.int64)
    origins = examples.origins(alone if len(alone) else indices)
    parts = []
    for name, text in SETS.items():
        if rows := sorted({origin.row + 1 for origin in origins if origin.of == name}):
            more = f" and {len(rows) - MAX_SHOWN} more" if len(rows) > MAX_SHOWN else ""
            numbers = ", ".join(map(str, rows[:MAX_SHOWN]))
            parts.append(text.format(f"{'row' if len(rows) == 1 else 'rows'} {numbers}{more}"))
    return f"{'in' if len(alone) else 'somewhere in'} {', '.join(parts)}"


def find_nan_teacher(teachers: Sequence[PreTrainedModel], batches: Iterable[Batch]) -> str | None:
    """Return the first teacher whose own outputs are not finite."""
    for batch in batches:
        for number, teacher in enumerate(teachers, 1):
            nn.Module.to(teacher, batch["input_ids"].device)
            with torch.no_grad():
                outputs = forward_teacher(teacher, batch).values()
            if not all(bool(torch.isfinite(output).all()) for output in outputs):
                return f"the teacher {teacher.name_or_path or number}"
    return None
