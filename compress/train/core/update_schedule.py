"""The schedule of one training as a pure function of its settings: batches, learning rate, phases, evaluations."""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from compress.data.encode import bucketed_batches
from compress.recipe.training_schema import Distill, Training
from compress.train.distillation.phases import loss_phases, phase_at


class UpdateSchedule:
    """The updates of one training, counted from 0; an update consists of `accumulate` batches."""

    def __init__(self, lengths: NDArray[np.int64], settings: Training, seed: int) -> None:
        batches = math.ceil(len(lengths) / settings.batch_size)
        self.per_epoch = math.ceil(batches / settings.accumulate)
        wanted = math.ceil(settings.epochs * self.per_epoch)
        self.total = min(wanted, settings.max_steps or wanted)
        self.rows = round(len(lengths) * self.total / self.per_epoch)
        """Examples of all updates; an estimate where the last epoch is not complete."""
        self.warmup = math.ceil(settings.warmup * self.total)
        self._stages = loss_phases(settings) if isinstance(settings, Distill) else ()
        self.phases = len(self._stages) or 1
        self._settings = settings
        # At the end of one epoch, the next is needed too.
        self._epoch = lru_cache(maxsize=2)(partial(bucketed_batches, lengths, settings.batch_size, seed))

    def batches(self, update: int) -> list[NDArray[np.int64]]:
        """Return the examples of each batch of an update."""
        epoch, position = divmod(update, self.per_epoch)
        start = position * self._settings.accumulate
        return self._epoch(epoch)[start : start + self._settings.accumulate]

    def factor(self, update: int) -> float:
        """Return the learning rate of an update as a fraction of the peak."""
        if update < self.warmup:
            return (update + 1) / self.warmup
        left = (self.total - update) / max(1, self.total - self.warmup)
        if self._settings.decay == "cosine":
            return 0.5 * (1 - math.cos(math.pi * left))
        return left if self._settings.decay == "linear" else 1.0

    def phase(self, update: int) -> int:
        """Return the phase of an update, counted from 0."""
        return phase_at(self._stages, update / self.total) if self._stages else 0

    def evaluates_after(self, done: int) -> bool:
        """Return whether to evaluate after ``done`` updates: evenly within each epoch, and at the end."""
        if done == self.total:
            return True
        evaluations = min(self._settings.evaluations, self.per_epoch)
        position = done % self.per_epoch or self.per_epoch
        return position * evaluations // self.per_epoch > (position - 1) * evaluations // self.per_epoch
