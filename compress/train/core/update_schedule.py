"""What one training does when, as a pure function of its settings: batches, rate, phases, evaluations."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from compress.data.encode import bucketed_batches
from compress.recipe.training_schema import Distill, Training
from compress.train.distillation.phases import loss_phases, phase_at


class UpdateSchedule:
    """The updates of one training, counted from 0; an update takes `accumulate` batches."""

    def __init__(self, lengths: NDArray[np.int64], settings: Training, seed: int) -> None:
        batches = math.ceil(len(lengths) / settings.batch_size)
        self.per_epoch = math.ceil(batches / settings.accumulate)
        wanted = math.ceil(settings.epochs * self.per_epoch)
        self.total = min(wanted, settings.max_steps or wanted)
        self.warmup = math.ceil(settings.warmup * self.total)
        self._stages = loss_phases(settings) if isinstance(settings, Distill) else ()
        self.phases = len(self._stages) or 1
        self._lengths = lengths
        self._settings = settings
        self._seed = seed
        self._epoch = lru_cache(maxsize=2)(self._batches_of_epoch)  # where one ends, the next is looked at too

    def batches(self, update: int) -> list[NDArray[np.int64]]:
        """The examples of each batch of an update."""
        epoch, place = divmod(update, self.per_epoch)
        start = place * self._settings.accumulate
        return self._epoch(epoch)[start : start + self._settings.accumulate]

    def rows_from(self, update: int) -> int:
        """How many examples are still to come at this update."""
        return self._rows_before(self.total) - self._rows_before(update)

    def factor(self, update: int) -> float:
        """The learning rate of an update, as a part of the full one."""
        if update < self.warmup:
            return (update + 1) / self.warmup
        left = (self.total - update) / max(1, self.total - self.warmup)
        if self._settings.decay == "cosine":
            return 0.5 * (1 - math.cos(math.pi * left))
        return left if self._settings.decay == "linear" else 1.0

    def phase(self, update: int) -> int:
        """The phase of an update, counted from 0."""
        return phase_at(self._stages, update / self.total) if self._stages else 0

    def evaluates_after(self, done: int) -> bool:
        """Whether to evaluate after so many updates: evenly within each epoch, and at the end."""
        if done == self.total:
            return True
        often = min(self._settings.evaluations, self.per_epoch)
        place = done % self.per_epoch or self.per_epoch
        return place * often // self.per_epoch > (place - 1) * often // self.per_epoch

    def _rows_before(self, update: int) -> int:
        """Examples of all earlier updates: whole epochs have every one, so only one epoch need be looked at."""
        epoch, place = divmod(update, self.per_epoch)
        begun = self._epoch(epoch)[: place * self._settings.accumulate] if place else []
        return epoch * len(self._lengths) + sum(len(batch) for batch in begun)

    def _batches_of_epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        return bucketed_batches(self._lengths, self._settings.batch_size, self._seed, epoch)
