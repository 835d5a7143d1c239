"""When a training will be done, from its first updates: told once, kept beside the result so that it can be checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from compress.console import duration
from compress.errors import counted
from compress.measure.flops import per_piece
from compress.measure.pace import Load, Pace, loads_of
from compress.models.families import shape_of
from compress.train.plan import Plan
from compress.train.record import State

SKIPPED = 2
"""First updates of a process, which are slower: memory and kernels are prepared in them."""
ENOUGH, SHARE, LEAST = 20, 0.05, 5
"""Updates after which a forecast is made: so many, or this share of all where that is less, and no fewer than the last
number."""


@dataclass(frozen=True)
class Told:
    """A forecast as it was made."""

    update: int
    seconds: float
    """Of the whole training, as its result counts them."""
    evaluations: bool
    """Whether what evaluations take is in it."""


def pair_weight(model: PreTrainedModel) -> float:
    """What a pair of pieces costs a model where a piece costs one; 0 where its operations are not known."""
    found = per_piece(shape_of(model))
    return found[1] / found[0] if found else 0.0


class Forecaster:
    """Watches one training. What it has seen stands in the training's state, so that it goes on after a kill."""

    def __init__(
        self,
        plan: Plan,
        lengths: NDArray[np.int64],
        pair: float,
        spared: Callable[[], float],
        say: Callable[[str], None],
        evaluates: bool,
    ) -> None:
        """What must be known beforehand.

        Args:
            plan: the updates and their batches.
            lengths: pieces of each example.
            pair: what a pair of pieces costs where a piece costs one.
            spared: seconds so far that no later epoch takes again.
            say: where a forecast is told.
            evaluates: whether anything is evaluated.
        """
        self._plan, self._lengths, self._pair = plan, lengths, pair
        self._spared, self._say, self._evaluates = spared, say, evaluates
        self._seen, self._before = 0, 0.0

    def updated(self, state: State, seconds: float) -> None:
        """The last update took so long."""
        load = self._load_of(state.done - 1)
        state.pieces, state.squares = state.pieces + load.pieces, state.squares + load.squares
        spared, self._before = self._spared() - self._before, self._spared()
        self._seen += 1
        if self._seen > SKIPPED:
            first = state.done <= self._plan.per_epoch
            pace = Pace(**(state.pace if first else state.later_pace))
            pace.add(self._work(load), seconds)
            if first:
                state.pace, state.spared = asdict(pace), state.spared + spared
            else:
                state.later_pace = asdict(pace)
        if not state.forecasts and state.pace.get("count", 0) >= self._due():
            self._tell(state, aloud=True)

    def evaluated(self, state: State, seconds: float) -> None:
        """The last evaluation took so long."""
        state.evaluating += seconds
        if state.forecasts and len(state.history) == 1:
            self._tell(state, aloud=False)

    def remaining(self, state: State) -> float:
        """Seconds of the updates that are still to come."""
        first, later = Pace(**state.pace), Pace(**state.later_pace)
        edge = max(state.done, min(self._plan.per_epoch, self._plan.total))
        now, then = self._between(state.done, edge), self._between(edge, self._plan.total)
        rest = first.forecast(edge - state.done, self._work(now))
        if later.count >= LEAST:
            return rest + later.forecast(self._plan.total - edge, self._work(then))
        again = 1.0 - state.spared / first.seconds if first.seconds else 1.0
        return rest + again * first.forecast(self._plan.total - edge, self._work(then))

    def _due(self) -> int:
        return max(LEAST, min(ENOUGH, math.ceil(SHARE * self._plan.total)))

    def _tell(self, state: State, aloud: bool) -> None:
        rest, seen = self.remaining(state), len(state.history)
        every = range(state.done + 1, self._plan.total + 1)
        looks = sum(map(self._plan.evaluates_after, every)) if self._evaluates else 0
        rest += looks * state.evaluating / seen if seen else 0.0
        state.forecasts.append(asdict(Told(state.done, state.seconds + rest, bool(seen) or not looks)))
        if aloud:
            beside = f" and {counted(looks, 'evaluation')}" if looks and not seen else ""
            self._say(f"about {duration(rest)}{beside} to go, as {counted(state.pace['count'], 'update')} tell")
            if len(state.sums) > 1:  # how their sizes compare says which weights to change
                told = ", ".join(f"{name} {loss:.3g}" for name, loss in state.mean_losses().items())
                self._say(f"losses so far: {told}")

    def _between(self, update: int, end: int) -> Load:
        return sum((self._load_of(each) for each in range(update, end)), Load())

    def _load_of(self, update: int) -> Load:
        return loads_of(self._lengths, self._plan.batches(update))

    def _work(self, load: Load) -> float:
        return load.pieces + self._pair * load.squares
