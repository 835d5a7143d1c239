"""The results of the check: the rows of its table, and the report."""

from collections.abc import Mapping
from typing import Any, Literal

from benchmarks.report_store import Report
from compress.measure.result_base import ResultModel, Score


class Turn(ResultModel):
    """One timing of the harness and of the other tool in the same turn."""

    ours: float
    """Median milliseconds of a call, by the harness."""
    theirs: float
    """The same by the other tool."""

    @property
    def ratio(self) -> float:
        """Above 1 where the harness measures longer times."""
        return self.ours / self.theirs


class Pairing(ResultModel):
    """The results of one session of two models that the check uses."""

    case: str
    """Which models, or the load during the session."""
    ratio: Score | None
    """None where one of the models has no figure; see the reasons."""
    p50: Mapping[str, float] = {}
    """Milliseconds."""
    unstable: bool = False
    """Whether the session marked a figure as unstable."""
    reasons: tuple[str, ...] = ()
    other_load: float | None = None
    """The larger share of the workers' cores that other processes took, where it was measured."""
    seconds: float = 0.0
    """What the session took, workers' start included."""


class Row(ResultModel):
    """One claim about the harness."""

    key: str
    part: str
    what: str
    goal: str
    result: str | None = None
    passed: bool | None = None
    """None: not decided; see the reason."""
    reason: str | None = "not run"
    turns: tuple[Turn, ...] = ()
    sessions: tuple[Pairing, ...] = ()
    setup: Mapping[str, Any] = {}
    """The other tool's command, in comparisons."""
    measured_at: str | None = None
    """When the row was finished, in UTC."""

    @property
    def verdict(self) -> str:
        """`yes`, `no`, or why there is none."""
        if self.passed is None:
            return self.reason or "not decided"
        return "yes" if self.passed else "no"


class HarnessReport(Report):
    """All rows of one run and where it ran."""

    about: Literal["harness"] = "harness"
    model: str | None = None
    """A description of the weights."""
    batch: int = 1
    length: int = 128
    threads: int = 1
    rows: tuple[Row, ...]

    @property
    def failed(self) -> bool:
        """Whether a claim did not hold."""
        return any(row.passed is False for row in self.rows)
