"""The remaining time of a training, estimated from its first updates and recorded with its result.

Phases differ in losses and in what they need of the teacher, and the first epoch differs from later ones, in which
teacher outputs are cached. So the speed of each is measured from its own updates, and an estimate covers the current
phase alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from compress.console import duration
from compress.errors import pluralize
from compress.train.core.train_state import TrainState
from compress.train.core.update_schedule import UpdateSchedule

WARMUP_UPDATES = 2
"""Updates after a start or a change of speed that are not measured, since memory and kernels are prepared."""
MIN_UPDATES = 5
"""Measured updates from which the remaining time is shown."""
FORECAST_UPDATES, FORECAST_SHARE = 20, 0.05
"""Updates before an estimate is logged: this many, or this share of all updates if less, but at least `MIN_UPDATES`."""


class Forecaster:
    """Estimates the remaining time of one training from the updates of this process."""

    def __init__(
        self, schedule: UpdateSchedule, lengths: NDArray[np.int64], evaluates: bool, log: Callable[[str], None]
    ) -> None:
        """``lengths`` are those of all examples; ``log`` is called with each estimate as text."""
        self._schedule, self._lengths, self._log = schedule, lengths, log
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
        return sum(rows * width for rows, width in sizes), sum(rows * width**2 for rows, width in sizes)
