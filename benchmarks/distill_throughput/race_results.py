"""The stored results of a comparison, and the ratios computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Literal

from benchmarks.report_store import Report, in_place
from compress.measure.result_base import ResultModel


class Lane(ResultModel):
    """One contestant of a race."""

    key: str
    about: str
    epochs: int = 1
    """Of which the last is timed."""
    precision: str | None = None
    speeds: tuple[float, ...] = ()
    """Examples a second, round by round."""
    scores: tuple[float, ...] = ()
    """Of its students on dev, round by round; the round is the seed."""
    reason: str | None = None
    """Why it has no speed, or no further one."""


class Ratio(ResultModel):
    """How many times as fast the first lane is as another one."""

    against: str
    goal: float
    rounds: tuple[float, ...] = ()
    """Within each round."""

    @property
    def value(self) -> float | None:
        """The median over rounds."""
        return median(self.rounds) if self.rounds else None

    @property
    def verdict(self) -> str:
        """`met`, `missed` or `not measured`."""
        if self.value is None:
            return "not measured"
        return "met" if self.value >= self.goal else "missed"


class Race(ResultModel):
    """One job and the results of all contestants."""

    key: str
    title: str
    rows: int
    pieces: float | None = None
    """Of a row, on average."""
    lanes: tuple[Lane, ...]
    goals: Mapping[str, float]
    fp32_goals: Mapping[str, float] | None = None
    """The goals where the first lane trains in fp32, if they differ."""
    reason: str | None = None
    """Why it was not run."""

    @property
    def ratios(self) -> tuple[Ratio, ...]:
        """Of the first lane to each other that has a goal."""
        first, others = self.lanes[0], {lane.key: lane for lane in self.lanes[1:]}
        goals = self.fp32_goals if self.fp32_goals and first.precision == "fp32" else self.goals
        return tuple(
            Ratio(
                against=key,
                goal=goal,
                rounds=tuple(a / b for a, b in zip(first.speeds, others[key].speeds, strict=False)),
            )
            for key, goal in goals.items()
            if key in others
        )

    def with_lane(self, lane: Lane) -> Race:
        """Return the race with the lane of this key replaced."""
        return self.model_copy(update={"lanes": in_place(self.lanes, lane)})

    @property
    def failed(self) -> bool:
        """Whether a contestant that should have run did not."""
        return any(lane.reason is not None for lane in self.lanes)


class ThroughputReport(Report):
    """All races of one run."""

    about: Literal["distill_throughput"] = "distill_throughput"
    data: str | None = None
    """A description of the rows."""
    batch: int
    threads: int
    instructions: str | None = None
    """To which torch and its libraries were limited."""
    teacher_score: float | None = None
    start_score: float | None = None
    """Of the student before training."""
    metric: str | None = None
    races: tuple[Race, ...]

    @property
    def failed(self) -> bool:
        """Whether a contestant did not run; a missed goal is no failure."""
        return any(race.failed for race in self.races)
