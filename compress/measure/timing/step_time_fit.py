"""How fast a training goes: a line through what its updates took, by how much was in them. Pure numbers.

An update costs something whatever is in it (the optimizer, the calls) and something for each operation. Batches are
bucketed by length, so that one holds many times what another does and both can be told apart from a few updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_UPDATES = 5
"""Updates that tell a pace; fewer are not believed."""


@dataclass(frozen=True)
class BatchLoad:
    """What a model was given: every model's operations are so many a piece and so many a pair of pieces."""

    pieces: int = 0
    """Word pieces, padding included."""
    squares: int = 0
    """The sum of each row's padded length squared, which attention grows by."""

    def __add__(self, other: BatchLoad) -> BatchLoad:
        return BatchLoad(self.pieces + other.pieces, self.squares + other.squares)


def batch_load(lengths: NDArray[np.int64]) -> BatchLoad:
    """The load of one batch of rows of these lengths: all are padded to the longest."""
    longest = int(lengths.max())
    return BatchLoad(len(lengths) * longest, len(lengths) * longest**2)


def total_load(lengths: NDArray[np.int64], batches: Sequence[NDArray[np.int64]]) -> BatchLoad:
    """The load of batches, each the places of its rows."""
    return sum((batch_load(lengths[batch]) for batch in batches), BatchLoad())


@dataclass
class StepTimeFit:
    """Running sums of (work, seconds) of updates; they are all that a line needs, so a checkpoint can hold them."""

    count: int = 0
    work: float = 0.0
    seconds: float = 0.0
    work_squared: float = 0.0
    work_seconds: float = 0.0

    def __add__(self, other: StepTimeFit) -> StepTimeFit:
        return StepTimeFit(
            self.count + other.count,
            self.work + other.work,
            self.seconds + other.seconds,
            self.work_squared + other.work_squared,
            self.work_seconds + other.work_seconds,
        )

    def add(self, work: float, seconds: float) -> None:
        """Count one update."""
        self.count += 1
        self.work += work
        self.seconds += seconds
        self.work_squared += work * work
        self.work_seconds += work * seconds

    def line(self) -> tuple[float, float]:
        """Seconds of an update whatever is in it, and seconds a unit of work: least squares, neither below zero.

        Where all updates were alike they cannot be told apart: then everything is said to come from the work.
        """
        spread = self.work_squared * self.count - self.work**2
        if self.count == 0 or self.work == 0:
            return 0.0, 0.0
        proportional = 0.0, self.seconds / self.work
        if spread <= 0.01 * self.work**2:  # works differ by less than a tenth of their mean
            return proportional
        slope = (self.work_seconds * self.count - self.work * self.seconds) / spread
        base = (self.seconds - slope * self.work) / self.count
        if slope <= 0:
            return self.seconds / self.count, 0.0
        return (base, slope) if base >= 0 else proportional

    def forecast(self, updates: int, work: float) -> float:
        """Seconds that so many updates with so much work in them will take."""
        base, slope = self.line()
        return base * updates + slope * work


@dataclass
class StepTimes:
    """Updates of the first epoch, and of later ones, where what a teacher said may be there already."""

    first: StepTimeFit = field(default_factory=StepTimeFit)
    later: StepTimeFit = field(default_factory=StepTimeFit)
    spared: float = 0.0
    """Seconds of the first ones that no later epoch takes again."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> StepTimes:
        """From the fields of these."""
        return cls(StepTimeFit(**told["first"]), StepTimeFit(**told["later"]), told["spared"])

    def __add__(self, other: StepTimes) -> StepTimes:
        return StepTimes(self.first + other.first, self.later + other.later, self.spared + other.spared)

    @property
    def count(self) -> int:
        """Updates that were seen."""
        return self.first.count + self.later.count

    @property
    def known(self) -> bool:
        """Whether they tell how long others will take."""
        return max(self.first.count, self.later.count) >= MIN_UPDATES

    @property
    def again(self) -> float:
        """What a later update takes, as a share of one of the first epoch."""
        if self.later.count >= MIN_UPDATES and self.first.seconds:
            return self.later.seconds / self.first.forecast(self.later.count, self.later.work)
        return 1.0 - self.spared / self.first.seconds if self.first.seconds else 1.0

    def forecast_later(self, updates: int, work: float) -> float:
        """Seconds that so many updates of later epochs will take."""
        if self.later.count >= MIN_UPDATES:
            return self.later.forecast(updates, work)
        return self.again * self.first.forecast(updates, work)
