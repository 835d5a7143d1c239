"""The remaining time of a training, estimated from the first updates of each phase and recorded with its result.

An estimate covers phases that have started: phases differ in losses and in what they need of the teacher, so the speed
of one says nothing about the next.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from compress.console import duration
from compress.errors import pluralize
from compress.measure.resources.flops import flops_per_token
from compress.measure.timing.step_time_fit import MIN_UPDATES, BatchLoad, total_load
from compress.models.encoder_parts import shape_of
from compress.train.core.train_state import TrainState
from compress.train.core.update_schedule import UpdateSchedule

WARMUP_UPDATES = 2
"""Updates at the start of a process or phase that are slower, since memory and kernels are prepared; not counted."""
FORECAST_UPDATES, FORECAST_SHARE = 20, 0.05
"""Updates before the first forecast: this many, or this share of all updates if less, but at least `MIN_UPDATES`."""


@dataclass(frozen=True)
class LoggedForecast:
    """An estimate at the time it was made."""

    update: int
    seconds: float
    """Of the whole training, or until the end of its phase, comparable with `TrainResult.seconds`."""
    evaluations: bool
    """Whether the time of evaluations is included."""
    phase: int = 0
    whole: bool = True
    """Whether it covers the training to its end."""


@dataclass
class RemainingWork:
    """Remaining updates of the same speed."""

    updates: int = 0
    work: float = 0.0
    evaluations: int = 0

    def add(self, work: float, evaluated: bool, sign: int) -> None:
        """Add an update, or with a ``sign`` of -1 remove it."""
        self.updates += sign
        self.work += sign * work
        self.evaluations += sign * evaluated


@dataclass(frozen=True)
class RemainingTime:
    """Estimated remaining time."""

    seconds: float
    unseen: int
    """Evaluations not included in the seconds, as none has run yet."""
    whole: bool

    @property
    def text(self) -> str:
        """The estimate as text: ``40 s and 2 evaluations``."""
        evaluations = f" and {pluralize(self.unseen, 'evaluation')}" if self.unseen else ""
        return duration(self.seconds) + evaluations


def attention_cost_ratio(model: PreTrainedModel) -> float:
    """Return the cost of a pair of tokens relative to that of a token; 0 for models of unknown operations."""
    flops = flops_per_token(shape_of(model))
    return flops[1] / flops[0] if flops else 0.0


class Forecaster:
    """Estimates the remaining time of one training from measurements in its state, so that they survive a kill."""

    def __init__(
        self,
        schedule: UpdateSchedule,
        lengths: NDArray[np.int64],
        pair: float,
        seconds_cached: Callable[[], float],
        log: Callable[[str], None],
        evaluates: bool,
    ) -> None:
        """Create an estimator.

        Args:
            schedule: updates, batches and phases.
            lengths: tokens of each example.
            pair: cost of a pair of tokens relative to that of a token.
            seconds_cached: returns the seconds so far that later epochs save through cached teacher outputs.
            log: called with each estimate as text.
            evaluates: whether the training evaluates.
        """
        self._schedule, self._lengths, self._pair = schedule, lengths, pair
        self._seconds_cached, self._log, self._evaluates = seconds_cached, log, evaluates
        self._cached_before, self._phase, self._updates_seen = 0.0, -1, 0
        self._remaining: dict[tuple[int, bool], RemainingWork] | None = None

    def updated(self, state: TrainState, seconds: float) -> None:
        """Record the time of the last update."""
        update, phase = state.done - 1, self._schedule.phase(state.done - 1)
        load = self._load_of(update)
        state.pieces, state.squares = state.pieces + load.pieces, state.squares + load.squares
        cached, self._cached_before = self._seconds_cached() - self._cached_before, self._seconds_cached()
        self._phase, self._updates_seen = phase, self._updates_seen + 1 if phase == self._phase else 1
        if self._remaining is not None:
            self._add_update(self._remaining, update, -1)
        paces = state.paces(phase)
        if self._updates_seen > WARMUP_UPDATES:
            if update < self._schedule.per_epoch:
                paces.first.add(self._work(load), seconds)
                paces.spared += cached
            else:
                paces.later.add(self._work(load), seconds)
        if paces.count >= self._updates_needed() and all(past.get("phase", 0) != phase for past in state.forecasts):
            self._forecast(state, log=True)

    def evaluated(self, state: TrainState, seconds: float) -> None:
        """Record the time of the last evaluation."""
        state.evaluating += seconds
        if state.forecasts and len(state.history) == 1:
            self._forecast(state, log=False)

    def left(self, state: TrainState) -> str:
        """Return the remaining time for a progress bar, as ``40 s left in phase 1 of 2``; empty where unknown."""
        time = self._remaining_time(state)
        return f"{time.text} left{self._phase_text(time)}" if time else ""

    def _remaining_time(self, state: TrainState) -> RemainingTime | None:
        """Return the remaining time of the current phase; None where too few of its updates have run."""
        phase = self._schedule.phase(state.done - 1)
        paces = state.paces(phase)
        if not paces.known:
            return None
        remaining = self._remaining_work(state)
        first, later = remaining[phase, True], remaining[phase, False]
        whole = not any(work.updates for (other, _), work in remaining.items() if other > phase)
        if not (first.updates or later.updates or whole):
            return None
        seconds = paces.first.forecast(first.updates, first.work) + paces.forecast_later(later.updates, later.work)
        evaluations, past = first.evaluations + later.evaluations, len(state.history)
        if past:
            return RemainingTime(seconds + evaluations * state.evaluating / past, 0, whole)
        return RemainingTime(seconds, evaluations, whole)

    def _updates_needed(self) -> int:
        return max(MIN_UPDATES, min(FORECAST_UPDATES, math.ceil(FORECAST_SHARE * self._schedule.total)))

    def _forecast(self, state: TrainState, log: bool) -> None:
        time = self._remaining_time(state)
        if time is None:
            return
        forecast = LoggedForecast(state.done, state.seconds + time.seconds, not time.unseen, self._phase, time.whole)
        state.forecasts.append(asdict(forecast))
        if log:
            self._log(self._describe(time, pluralize(state.paces(self._phase).count, "update")))
            if len(state.sums) > 1:  # their relative sizes show which weights to change
                losses = ", ".join(f"{name} {loss:.3g}" for name, loss in state.mean_losses().items())
                self._log(f"mean weighted losses so far: {losses}")

    def _describe(self, time: RemainingTime, updates: str) -> str:
        """Return the estimate as one line; phases that have not started are not covered."""
        if not time.whole:
            later = "later phases are estimated once they start"
            return f"about {time.text} left{self._phase_text(time)} (estimated from {updates}; {later})"
        phase = f" of phase {self._phase + 1}" if self._schedule.phases > 1 else ""
        return f"about {time.text} left (estimated from {updates}{phase})"

    def _phase_text(self, time: RemainingTime) -> str:
        return "" if time.whole else f" in phase {self._phase + 1} of {self._schedule.phases}"

    def _remaining_work(self, state: TrainState) -> dict[tuple[int, bool], RemainingWork]:
        """Return the remaining work by (phase, first epoch); computed on first use, then updated."""
        if self._remaining is None:
            self._remaining = defaultdict(RemainingWork)
            for update in range(state.done, self._schedule.total):
                self._add_update(self._remaining, update, 1)
        return self._remaining

    def _add_update(self, remaining: dict[tuple[int, bool], RemainingWork], update: int, sign: int) -> None:
        evaluated = self._evaluates and self._schedule.evaluates_after(update + 1)
        key = self._schedule.phase(update), update < self._schedule.per_epoch
        remaining[key].add(self._work(self._load_of(update)), evaluated, sign)

    def _load_of(self, update: int) -> BatchLoad:
        return total_load(self._lengths, self._schedule.batches(update))

    def _work(self, load: BatchLoad) -> float:
        return load.pieces + self._pair * load.squares
