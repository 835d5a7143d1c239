"""The schedule of one training as a pure function of its settings: batches, learning rate, phases, evaluations.

And the time that remains of it, estimated from its first updates.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from compress.console import duration
from compress.data.encode import bucketed_batches
from compress.errors import pluralize
from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import EpochBounds, Training, number
from compress.train.core.checkpoints import TrainState
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


WARMUP_UPDATES = 2
"""Updates after a start or a change of speed that are not measured, since memory and kernels are prepared."""
MIN_UPDATES = 5
"""Measured updates from which the remaining time is shown."""
FORECAST_UPDATES, FORECAST_SHARE = 20, 0.05
"""Updates before an estimate is logged: this many, or this share of all updates if less, but at least `MIN_UPDATES`."""


class Forecaster:
    """Estimates the remaining time of one training from the updates of this process."""

    def __init__(
        self,
        schedule: UpdateSchedule,
        lengths: NDArray[np.int64],
        evaluates: bool,
        log: Callable[[str], None],
        examples_per_row: float = 1.0,
    ) -> None:
        """``lengths`` are of rows, each with so many examples; ``log`` is called with each estimate as text."""
        self._schedule, self._lengths, self._log = schedule, lengths, log
        self._examples_per_row = examples_per_row
        self._evaluates, self._counted = evaluates, 0
        self._mean_tokens = sum(self._load(update)[0] for update in range(schedule.per_epoch)) / schedule.per_epoch
        self._log_after = max(MIN_UPDATES, min(FORECAST_UPDATES, math.ceil(FORECAST_SHARE * schedule.total)))
        self._stage: tuple[int, bool] | None = None

    def updated(self, state: TrainState, seconds: float) -> None:
        """Record the time of the last update."""
        update = state.done - 1
        tokens, squares = self._load(update)
        state.pieces, state.squares = state.pieces + tokens, state.squares + squares
        if self._counted != self._schedule.total:  # at the start, and when an open end is decided
            self._count_evaluations()
        stage = self._schedule.phase(update), update < self._schedule.per_epoch
        if stage != self._stage:
            self._stage, self._updates, self._tokens, self._seconds = stage, -WARMUP_UPDATES, 0, 0.0
            self._end = next(
                (later for later in range(update, self._schedule.total) if self._schedule.phase(later) != stage[0]),
                self._schedule.total,
            )
        self._updates += 1
        if self._updates > 0:
            self._tokens, self._seconds = self._tokens + tokens, self._seconds + seconds
        if self._updates == self._log_after and state.done < self._end:
            self._forecast(state)

    def _count_evaluations(self) -> None:
        self._counted = self._end = self._schedule.total
        updates = range(1, self._counted + 1) if self._evaluates else ()
        self._evaluations = np.array([update for update in updates if self._schedule.evaluates_after(update)])

    def left(self, state: TrainState) -> str:
        """Return the remaining time for a progress bar, as ``40 s left in phase 1 of 2``; empty where unknown."""
        if self._updates < MIN_UPDATES:
            return ""
        return f"{'at most ' if self._is_open else ''}{self._describe(*self._remaining(state))}"

    def _remaining(self, state: TrainState) -> tuple[float, int]:
        """Return the remaining seconds of the phase, and the evaluations not included, as none has run yet."""
        seconds = self._seconds / self._tokens * self._mean_tokens * (self._end - state.done)
        evaluations = int(((self._evaluations > state.done) & (self._evaluations <= self._end)).sum())
        if not state.history:
            return seconds, evaluations
        return seconds + evaluations * state.evaluating / len(state.history), 0

    def _forecast(self, state: TrainState) -> None:
        """Log and record an estimate."""
        seconds, unseen = self._remaining(state)
        whole = self._end == self._schedule.total and not self._is_open
        forecast = {"update": state.done, "seconds": state.seconds + seconds, "evaluations": not unseen, "whole": whole}
        state.forecasts.append(forecast)
        later = "" if self._end == self._schedule.total else "; later phases are estimated once they start"
        basis = f"estimated from {pluralize(self._updates, 'update')}{later}"
        self._log(f"{'at most' if self._is_open else 'about'} {self._describe(seconds, unseen)} ({basis})")
        if len(state.sums) > 1:  # their relative sizes show which weights to change
            losses = ", ".join(f"{name} {loss:.3g}" for name, loss in state.mean_losses().items())
            self._log(f"mean weighted losses so far: {losses}")

    @property
    def _is_open(self) -> bool:
        """Whether the training may end before its last update."""
        return self._schedule.is_open and self._schedule.tail is None

    def _describe(self, seconds: float, unseen: int) -> str:
        evaluations = f" and {pluralize(unseen, 'evaluation')}" if unseen else ""
        phase = f" in phase {self._schedule.phase(self._end - 1) + 1} of {self._schedule.phases}"
        return f"{duration(seconds)}{evaluations} left{'' if self._end == self._schedule.total else phase}"

    def _load(self, update: int) -> tuple[int, int]:
        """Return the tokens of an update, padding included, and the squared padded lengths of its examples."""
        sizes = [(len(batch), int(self._lengths[batch].max())) for batch in self._schedule.batches(update)]
        pieces, squares = (sum(rows * width**power for rows, width in sizes) for power in (1, 2))
        return round(self._examples_per_row * pieces), round(self._examples_per_row * squares)
