"""The gradients of one update, summed over its batches and over the processes that share them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from compress.train.core.device_batches import DeviceBatches
from compress.train.core.distributed import Processes
from compress.train.core.optimizer import ModelAndOptimizer
from compress.train.core.shares import Replica, ShareThreads, replicate
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.objective import Batch, Objective


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
