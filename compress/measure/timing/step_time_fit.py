"""The speed of a training: a line fitted to the duration of its updates by their amount of work. Pure numbers.

An update has a fixed cost (the optimizer, the calls) and a cost for each operation. Batches are bucketed by length, so
that their work differs by a large factor and both costs can be estimated from a few updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_UPDATES = 5
"""Updates from which a fit is used."""


@dataclass(frozen=True)
class BatchLoad:
    """The input of a model: its operations are a sum of a number a piece and a number a pair of pieces."""

    pieces: int = 0
    """Word pieces, padding included."""
    squares: int = 0
    """The sum of each row's padded length squared, for attention."""

    def __add__(self, other: BatchLoad) -> BatchLoad:
        return BatchLoad(self.pieces + other.pieces, self.squares + other.squares)


def batch_load(lengths: NDArray[np.int64]) -> BatchLoad:
    """Return the load of one batch of rows of these lengths, padded to the longest."""
    longest = int(lengths.max())
    return BatchLoad(len(lengths) * longest, len(lengths) * longest**2)


def total_load(lengths: NDArray[np.int64], batches: Sequence[NDArray[np.int64]]) -> BatchLoad:
    """Return the load of batches, each the indices of its rows."""
    return sum((batch_load(lengths[batch]) for batch in batches), BatchLoad())


@dataclass
class StepTimeFit:
    """Running sums of (work, seconds) of updates: enough to fit a line, and small enough for a checkpoint."""

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
        """Return the fixed seconds of an update and the seconds a unit of work: least squares, neither below zero.

        If all updates were alike the two cannot be separated: then all time is attributed to the work.
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
        """Return the expected seconds of so many updates with so much work."""
        base, slope = self.line()
        return base * updates + slope * work


@dataclass
class StepTimes:
    """Updates of the first epoch, and of later ones, in which the teacher's outputs may be cached."""

    first: StepTimeFit = field(default_factory=StepTimeFit)
    later: StepTimeFit = field(default_factory=StepTimeFit)
    spared: float = 0.0
    """Seconds of the first epoch that later ones do not need."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> StepTimes:
        """Create from a mapping of its fields."""
        return cls(StepTimeFit(**fields["first"]), StepTimeFit(**fields["later"]), fields["spared"])

    def __add__(self, other: StepTimes) -> StepTimes:
        return StepTimes(self.first + other.first, self.later + other.later, self.spared + other.spared)

    @property
    def count(self) -> int:
        """Number of recorded updates."""
        return self.first.count + self.later.count

    @property
    def known(self) -> bool:
        """Whether there are enough updates for a forecast."""
        return max(self.first.count, self.later.count) >= MIN_UPDATES

    @property
    def again(self) -> float:
        """Duration of a later update as a share of one of the first epoch."""
        if self.later.count >= MIN_UPDATES and self.first.seconds:
            return self.later.seconds / self.first.forecast(self.later.count, self.later.work)
        return 1.0 - self.spared / self.first.seconds if self.first.seconds else 1.0

    def forecast_later(self, updates: int, work: float) -> float:
        """Return the expected seconds of so many updates of later epochs."""
        if self.later.count >= MIN_UPDATES:
            return self.later.forecast(updates, work)
        return self.again * self.first.forecast(updates, work)
