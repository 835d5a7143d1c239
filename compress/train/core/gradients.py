"""The gradients of one update: summed over its batches, and over the processes that share each of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compress.train.core.device_batches import DeviceBatches
from compress.train.core.distributed import Processes
from compress.train.core.model_and_optimizer import ModelAndOptimizer
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.objective import Objective


class UpdateGradients(NamedTuple):
    """What an update came to; the gradients themselves stand at the parameters."""

    rows: int
    losses: dict[str, float]
    norm: float
    """Of all gradients together."""
    due: bool
    """Whether the main process wants a checkpoint: all must agree, and their clocks differ."""


class Gradients:
    """Each row of an update weighs the same, whichever batch it stands in and whichever process runs it."""

    def __init__(
        self,
        objective: Objective,
        batches: DeviceBatches,
        plan: UpdateSchedule,
        learner: ModelAndOptimizer,
        processes: Processes,
    ) -> None:
        self.objective = objective
        self.batches = batches
        self.plan = plan
        self.learner = learner
        self.processes = processes

    def of(self, update: int, due: bool) -> UpdateGradients:
        """Those of one update; ``due`` is what this process thinks of a checkpoint after it."""
        batches = self.plan.batches(update)
        rows = sum(len(batch) for batch in batches)
        self.learner.begin()
        sums: dict[str, Tensor] = {}
        later = self.plan.batches(update + 1) if self.batches.look_ahead and update + 1 < self.plan.total else []
        for batch, then in zip(batches, [*batches[1:], *later[:1], None], strict=False):
            for name, loss in self._share_of(batch, rows, then).items():
                sums[name] = sums[name] + loss if name in sums else loss
        wants = torch.full((), float(self.processes.is_main and due), device=self.processes.device)  # not copied
        values = self.processes.sum_gradients(self.learner.parameters, torch.stack([*sums.values(), wants]).float())
        norm = self.learner.norm().float()
        *told, wanted, length = torch.cat([values, norm[None]]).tolist()  # the one wait for a GPU
        return UpdateGradients(rows, dict(zip(sums, told, strict=True)), length, wanted > 0)

    def is_nonfinite(self, indices: NDArray[np.int64]) -> bool:
        """Whether these examples give a loss that is no number, without dropout."""
        self.learner.model.train(False)
        with torch.no_grad(), self.learner.running():
            losses = self.objective(self.learner.model, self.batches(indices))
        return not all(bool(torch.isfinite(loss)) for loss in losses.values())

    def _share_of(self, batch: NDArray[np.int64], rows: int, then: NDArray[np.int64] | None) -> dict[str, Tensor]:
        """Add the gradients of this process's share of a batch; the losses come back weighted as they were added."""
        mine, others = self._mine(batch), None if then is None else self._mine(then)
        weight = len(mine) / rows if self.processes.rank < len(batch) else 0.0
        tensors = self.batches(mine, others)
        with self.learner.running():
            losses = self.objective(self.learner.model, tensors)
            weighted = {name: loss.float() * weight for name, loss in losses.items()}
            self.learner.add_gradients(torch.stack(list(weighted.values())).sum())
        return {name: loss.detach() for name, loss in weighted.items()}

    def _mine(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        """This process's share of a batch.

        A process without one runs a row that weighs nothing: every process must have the same gradients to sum.
        """
        mine = batch[self.processes.rank :: self.processes.count]
        return mine if len(mine) else batch[:1]
