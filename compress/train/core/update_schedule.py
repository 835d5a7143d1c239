"""The schedule of one training as a pure function of its settings: batches, learning rate, phases, evaluations."""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from compress.data.encode import bucketed_batches
from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import EpochBounds, Training, number
from compress.train.distillation.phases import loss_phases, phase_at

TAIL = 1.0
"""Updates in which the rate falls at the end of a training that ends when it is done, as a share of those before: in
half of all updates, as docs/training-settings.md measured."""


class UpdateSchedule:
    """The updates of one training, counted from 0; an update consists of `accumulate` batches.

    With bounds of epochs the rate stays at its peak after the warmup until `end_soon` is called, then falls: a
    warmup-stable-decay schedule (Hägele et al., "Scaling Laws and Compute-Optimal Training Beyond Fixed Training
    Durations", 2024, arXiv:2405.18392), whose length need not be known at the start.
    """

    def __init__(self, lengths: NDArray[np.int64], settings: Training, seed: int) -> None:
        size, epochs = number(settings.batch_size), settings.epochs
        self.per_epoch = math.ceil(math.ceil(len(lengths) / size) / settings.accumulate)
        self.is_open = isinstance(epochs, EpochBounds)
        """Whether `end_soon` decides how many of `total` updates there are."""
        least, most = (epochs.least, epochs.most) if isinstance(epochs, EpochBounds) else (number(epochs),) * 2
        wanted = math.ceil(most * self.per_epoch)
        self.total = self._most = min(wanted, settings.max_steps or wanted)
        """The number of updates; the most while it may still become less."""
        self.least = min(self.total, math.ceil(least * self.per_epoch))
        self.tail: int | None = None
        """The first update of the falling rate at the end, once `end_soon` has set it."""
        self.warmup = math.ceil(settings.warmup * self.least)
        self._stages = loss_phases(settings) if isinstance(settings, Distill) else ()
        self.phases = len(self._stages) or 1
        self._settings = settings
        # At the end of one epoch, the next is needed too.
        self._epoch = lru_cache(maxsize=2)(partial(bucketed_batches, lengths, size, seed))
        epochs, position = divmod(self.total, self.per_epoch)
        part = self._epoch(epochs)[: position * settings.accumulate] if position else []
        self.rows = epochs * len(lengths) + sum(map(len, part))
        """Examples of all updates, before `end_soon` makes them fewer."""

    def batches(self, update: int) -> list[NDArray[np.int64]]:
        """Return the examples of each batch of an update."""
        epoch, position = divmod(update, self.per_epoch)
        start = position * self._settings.accumulate
        return self._epoch(epoch)[start : start + self._settings.accumulate]

    def would_end_sooner(self, done: int) -> bool:
        """Return whether a tail after ``done`` updates would end before the largest number of them."""
        return done * (1 + TAIL) < self._most

    def may_end_soon(self, done: int) -> bool:
        """Return whether a tail after ``done`` updates would end after the least number of them."""
        return self.is_open and done * (1 + TAIL) >= self.least

    def must_end_soon(self, done: int) -> bool:
        """Return whether a tail after ``done`` updates would end at the largest number of them."""
        return self.is_open and not self.would_end_sooner(done)

    def end_soon(self, done: int) -> None:
        """Let the rate fall to zero after ``done`` updates, in as many more."""
        self.tail = done
        self.total = min(self.total, done + max(1, round(TAIL * done)))

    def factor(self, update: int) -> float:
        """Return the learning rate of an update as a fraction of the peak."""
        if self.tail is None or update < self.tail:
            return self._factor_before_tail(update)
        left = (self.total - update) / (self.total - self.tail)
        return self._factor_before_tail(update) * self._decayed(left)

    def _factor_before_tail(self, update: int) -> float:
        if update < self.warmup:
            return (update + 1) / self.warmup
        if self.is_open:
            return 1.0
        return self._decayed((self._most - update) / max(1, self._most - self.warmup))

    def _decayed(self, left: float) -> float:
        """Return the rate where this share of the updates in which it falls is left."""
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
