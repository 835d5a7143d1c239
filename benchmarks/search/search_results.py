"""The stored results: the models that each way of searching made, when it had them, and whether budgets were met."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from benchmarks.report_store import Report
from compress.measure.result_base import ResultModel

Point = tuple[float, float]
"""How many times faster than the teacher in PyTorch, and the share of its test score."""


class Made(ResultModel):
    """What one run made: a whole search, or one student of those that are trained one by one."""

    set: str
    seed: int
    way: str
    number: int = 0
    """Of the run, in its way."""
    title: str = ""
    minutes: float = 0.0
    """Of its trainings, without fine-tuning the teacher and without timing."""
    points: tuple[Point, ...] = ()
    reason: str | None = None
    """Why there are none."""
    processor: str = ""
    """On which it was made."""

    @property
    def key(self) -> str:
        """Its name."""
        return f"{self.set}/{self.seed}/{self.way}/{self.number}"


class Budget(ResultModel):
    """A budget, and the winner's ratio when it was measured again beside the teacher."""

    set: str
    seed: int
    asked: str
    """As `--budget` takes it."""
    winner: str | None
    speedup: float | None
    """The one that was asked for."""
    measured: float | None = None
    """Again, in a session of its own."""
    parts: int | None = None
    """How many were trained on."""
    worse: int | None = None
    """How many of them are worse on select than a faster one (paired, p < 0.05): what could have been stopped."""

    @property
    def key(self) -> str:
        """Its name."""
        return f"{self.set}/{self.seed}/{self.asked}"

    @property
    def is_met(self) -> bool | None:
        """Within 5 %; None where nothing won."""
        return self.measured >= 0.95 * self.speedup if self.measured and self.speedup else None


class SearchReport(Report):
    """The whole comparison."""

    about: Literal["search"] = "search"
    rows: int
    made: tuple[Made, ...] = ()
    budgets: tuple[Budget, ...] = ()
    floors: Mapping[str, float] = {}
    """By set, the bag of words' share of the teacher's test score."""

    def of(self, name: str, seed: int, way: str) -> list[Made]:
        """Return the runs of one way, in their order."""
        return [each for each in self.made if (each.set, each.seed, each.way) == (name, seed, way)]


def hypervolume(points: Sequence[Point], floor: float) -> float:
    """Return the area that a front rules, over the logarithm to base 10 of the speed and the share of the score.

    Its corner is the teacher's time and the bag of words' score: what is slower or worse adds nothing.
    """
    area, best = 0.0, floor
    for speed, share in sorted(points, key=lambda each: (-each[0], -each[1])):
        if share > best and speed > 1.0:
            area += math.log10(speed) * (share - best)
            best = share
    return area


def over_time(runs: Sequence[Made], floor: float) -> list[tuple[float, float]]:
    """Return the minutes and the hypervolume after each run."""
    minutes, points, steps = 0.0, list[Point](), list[tuple[float, float]]()
    for each in runs:
        minutes += each.minutes
        points += each.points
        steps.append((minutes, hypervolume(points, floor)))
    return steps


def volume_at(steps: Sequence[tuple[float, float]], minutes: float) -> float:
    """Return the hypervolume that was there after so many minutes."""
    return max((volume for when, volume in steps if when <= minutes), default=0.0)
