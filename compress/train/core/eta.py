"""When a training will be done, from the first updates of each phase: told, and kept beside the result to be checked.

What is told reaches as far as what was seen: phases have losses of their own, and another teacher's part to run, so
that one which has not begun says nothing of itself.
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

SKIPPED = 2
"""First updates of a process or of a phase, which are slower: memory and kernels are prepared in them."""
ENOUGH, SHARE = 20, 0.05
"""Updates before the first forecast: this many, or this share of all updates if less, but at least `MIN_UPDATES`."""


@dataclass(frozen=True)
class LoggedForecast:
    """A forecast as it was made."""

    update: int
    seconds: float
    """Of the whole training, or until its phase ends, as its result counts them."""
    evaluations: bool
    """Whether what evaluations take is in it."""
    phase: int = 0
    whole: bool = True
    """Whether it reaches the end of the training."""


@dataclass
class RemainingWork:
    """Updates still to come that go at one pace."""

    updates: int = 0
    work: float = 0.0
    evaluations: int = 0

    def count(self, work: float, evaluated: bool, sign: int) -> None:
        """One more, or with a ``sign`` of -1 one less."""
        self.updates += sign
        self.work += sign * work
        self.evaluations += sign * evaluated


@dataclass(frozen=True)
class RemainingTime:
    """What is still to come."""

    seconds: float
    unseen: int
    """Evaluations that are not in the seconds: none was seen yet."""
    whole: bool

    @property
    def text(self) -> str:
        """Read as ``40 s and 2 evaluations``."""
        beside = f" and {pluralize(self.unseen, 'evaluation')}" if self.unseen else ""
        return duration(self.seconds) + beside


def attention_cost_ratio(model: PreTrainedModel) -> float:
    """What a pair of pieces costs a model where a piece costs one; 0 where its operations are not known."""
    found = flops_per_token(shape_of(model))
    return found[1] / found[0] if found else 0.0


class Forecaster:
    """Watches one training. What it has seen stands in the training's state, so that it goes on after a kill."""

    def __init__(
        self,
        plan: UpdateSchedule,
        lengths: NDArray[np.int64],
        pair: float,
        seconds_cached: Callable[[], float],
        say: Callable[[str], None],
        evaluates: bool,
    ) -> None:
        """What must be known beforehand.

        Args:
            plan: the updates, their batches and their phases.
            lengths: pieces of each example.
            pair: what a pair of pieces costs where a piece costs one.
            seconds_cached: seconds so far that no later epoch takes again.
            say: where a forecast is told.
            evaluates: whether anything is evaluated.
        """
        self._plan, self._lengths, self._pair = plan, lengths, pair
        self._spared, self._say, self._evaluates = seconds_cached, say, evaluates
        self._before, self._phase, self._seen = 0.0, -1, 0
        self._ahead: dict[tuple[int, bool], RemainingWork] | None = None

    def updated(self, state: TrainState, seconds: float) -> None:
        """The last update took so long."""
        update, phase = state.done - 1, self._plan.phase(state.done - 1)
        load = self._load_of(update)
        state.pieces, state.squares = state.pieces + load.pieces, state.squares + load.squares
        seconds_cached, self._before = self._spared() - self._before, self._spared()
        self._phase, self._seen = phase, self._seen + 1 if phase == self._phase else 1
        if self._ahead is not None:
            self._count(self._ahead, update, -1)
        paces = state.paces(phase)
        if self._seen > SKIPPED:
            if update < self._plan.per_epoch:
                paces.first.add(self._work(load), seconds)
                paces.spared += seconds_cached
            else:
                paces.later.add(self._work(load), seconds)
        if paces.count >= self._due() and all(told.get("phase", 0) != phase for told in state.forecasts):
            self._tell(state, aloud=True)

    def evaluated(self, state: TrainState, seconds: float) -> None:
        """The last evaluation took so long."""
        state.evaluating += seconds
        if state.forecasts and len(state.history) == 1:
            self._tell(state, aloud=False)

    def left(self, state: TrainState) -> str:
        """For a progress bar, read as ``40 s left in phase 1 of 2``; nothing where it is not known yet."""
        rest = self._rest(state)
        return f"{rest.text} left{self._within(rest)}" if rest else ""

    def _rest(self, state: TrainState) -> RemainingTime | None:
        """Of the phase that runs, which is all where it is the last; None where too few of its updates were seen."""
        phase = self._plan.phase(state.done - 1)
        paces = state.paces(phase)
        if not paces.known:
            return None
        ahead = self._still_ahead(state)
        first, later = ahead[phase, True], ahead[phase, False]
        whole = not any(each.updates for (other, _), each in ahead.items() if other > phase)
        if not (first.updates or later.updates or whole):
            return None
        seconds = paces.first.forecast(first.updates, first.work) + paces.forecast_later(later.updates, later.work)
        looks, seen = first.evaluations + later.evaluations, len(state.history)
        return RemainingTime(seconds + (looks * state.evaluating / seen if seen else 0.0), 0 if seen else looks, whole)

    def _due(self) -> int:
        return max(MIN_UPDATES, min(ENOUGH, math.ceil(SHARE * self._plan.total)))

    def _tell(self, state: TrainState, aloud: bool) -> None:
        rest = self._rest(state)
        if rest is None:
            return
        told = LoggedForecast(state.done, state.seconds + rest.seconds, not rest.unseen, self._phase, rest.whole)
        state.forecasts.append(asdict(told))
        if aloud:
            self._say(self._words(rest, pluralize(state.paces(self._phase).count, "update")))
            if len(state.sums) > 1:  # how their sizes compare says which weights to change
                losses = ", ".join(f"{name} {loss:.3g}" for name, loss in state.mean_losses().items())
                self._say(f"losses so far: {losses}")

    def _words(self, rest: RemainingTime, updates: str) -> str:
        """One line, honest about phases that have not begun."""
        if not rest.whole:
            beyond = "what comes after it is known once it has begun"
            return f"about {rest.text} to go{self._within(rest)}, as {updates} tell; {beyond}"
        of = f" of phase {self._phase + 1}" if self._plan.phases > 1 else ""
        return f"about {rest.text} to go, as {updates}{of} tell"

    def _within(self, rest: RemainingTime) -> str:
        return "" if rest.whole else f" in phase {self._phase + 1} of {self._plan.phases}"

    def _still_ahead(self, state: TrainState) -> dict[tuple[int, bool], RemainingWork]:
        """By phase, and whether it is the first epoch: counted once, when it is first wanted, and then kept up."""
        if self._ahead is None:
            self._ahead = defaultdict(RemainingWork)
            for update in range(state.done, self._plan.total):
                self._count(self._ahead, update, 1)
        return self._ahead

    def _count(self, ahead: dict[tuple[int, bool], RemainingWork], update: int, sign: int) -> None:
        evaluated = self._evaluates and self._plan.evaluates_after(update + 1)
        place = self._plan.phase(update), update < self._plan.per_epoch
        ahead[place].count(self._work(self._load_of(update)), evaluated, sign)

    def _load_of(self, update: int) -> BatchLoad:
        return total_load(self._lengths, self._plan.batches(update))

    def _work(self, load: BatchLoad) -> float:
        return load.pieces + self._pair * load.squares
