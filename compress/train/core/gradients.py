"""The gradients of one update, summed over its batches and over the processes that share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compress.train.core.device_batches import DeviceBatches
from compress.train.core.distributed import Processes
from compress.train.core.optimizer import ModelAndOptimizer
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.objective import Objective


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

    def accumulate(self, update: int, checkpoint_due: bool) -> UpdateGradients:
        """Compute the gradients of one update; ``checkpoint_due`` is this process's opinion."""
        batches = self.schedule.batches(update)
        rows = sum(len(batch) for batch in batches)
        self.trained.begin_update()
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
        mine, following = self._local(batch), None if next_batch is None else self._local(next_batch)
        weight = len(mine) / rows if self.processes.rank < len(batch) else 0.0
        tensors = self.batches(mine, following)
        with self.trained.running():
            losses = self.objective(self.trained.model, tensors)
            weighted = {name: loss.float() * weight for name, loss in losses.items()}
            self.trained.add_gradients(torch.stack(list(weighted.values())).sum())
        return {name: loss.detach() for name, loss in weighted.items()}

    def _local(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return this process's share of a batch.

        A process without a share computes one row with weight zero, since all processes must have the same gradients.
        """
        mine = batch[self.processes.rank :: self.processes.count]
        return mine if len(mine) else batch[:1]
