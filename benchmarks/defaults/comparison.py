"""The stored results of the comparison: what each contestant reached on each set with each seed."""

from collections.abc import Mapping
from typing import Literal

from benchmarks.report_store import Report
from compress.measure.quality.quality_result import Difference
from compress.measure.result_base import ResultModel


class Entry(ResultModel):
    """One contestant on one set with one seed."""

    set: str
    seed: int
    contestant: str
    scores: Mapping[str, float] = {}
    """On test: `bag of words`, `probe`, `teacher`, `pruned`, `winner`, or the contestant's own name."""
    seconds: float | None = None
    """Of the whole run, or of all trainings."""
    training: float | None = None
    """Seconds of the teacher's training, or of the best one of a grid."""
    settings: str | None = None
    """The chosen settings."""
    versus: Difference | None = None
    """The default recipe's teacher minus this one's model, on the same rows."""
    processor: str | None = None
    """What it ran on; None in entries of earlier versions, which ran on the report's own."""
    reason: str | None = None
    """Why there is no score."""

    @property
    def key(self) -> str:
        """Return its name."""
        return f"{self.set}/{self.seed}/{self.contestant}"


class DefaultsReport(Report):
    """The whole comparison."""

    about: Literal["defaults"] = "defaults"
    limit: int
    """Rows of each role, at most."""
    grid: str = ""
    """Rates and numbers of epochs."""
    entries: tuple[Entry, ...] = ()

    def entry(self, key: str) -> Entry | None:
        """Return an entry that was measured."""
        return next((entry for entry in self.entries if entry.key == key), None)

    @property
    def failed(self) -> bool:
        """Whether the default recipe did not run on some set."""
        return any(entry.reason for entry in self.entries if entry.contestant == "ours")
