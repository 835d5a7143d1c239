"""How fast a training goes: a line through what its updates took, by how much was in them. Pure numbers.

An update costs something whatever is in it (the optimizer, the calls) and something for each operation. Batches are
bucketed by length, so that one holds many times what another does and both can be told apart from a few updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Load:
    """What a model was given: every model's operations are so many a piece and so many a pair of pieces."""

    pieces: int = 0
    """Word pieces, padding included."""
    squares: int = 0
    """The sum of each row's padded length squared, which attention grows by."""

    def __add__(self, other: Load) -> Load:
        return Load(self.pieces + other.pieces, self.squares + other.squares)


def load_of(lengths: NDArray[np.int64]) -> Load:
    """The load of one batch of rows of these lengths: all are padded to the longest."""
    longest = int(lengths.max())
    return Load(len(lengths) * longest, len(lengths) * longest**2)


def loads_of(lengths: NDArray[np.int64], batches: Sequence[NDArray[np.int64]]) -> Load:
    """The load of batches, each the places of its rows."""
    return sum((load_of(lengths[batch]) for batch in batches), Load())


@dataclass
class Pace:
    """Running sums of (work, seconds) of updates; they are all that a line needs, so a checkpoint can hold them."""

    count: int = 0
    work: float = 0.0
    seconds: float = 0.0
    work_squared: float = 0.0
    work_seconds: float = 0.0

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
