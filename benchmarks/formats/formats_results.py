"""The stored results: one entry for each format and precision."""

from collections.abc import Mapping
from typing import Literal

from benchmarks.report_store import Report
from compress.measure.result_base import ResultModel


class Entry(ResultModel):
    """The student as one variant."""

    variant: str
    format: str
    precision: str
    megabytes: float | None = None
    """Of the weights and graph."""
    score: float | None = None
    """Accuracy on test, rows one by one."""
    agreement: float | None = None
    """Share of test on which it gives PyTorch's class."""
    milliseconds: Mapping[str, float] = {}
    """Median of a call at batch 1, by session."""
    load_seconds: float | None = None
    """From nothing loaded to a model ready to run, in a fresh process; its files are in the page cache."""
    memory_megabytes: float | None = None
    """Resident memory of the process that ran it at own lengths, with the interpreter and the runtime."""
    reason: str | None = None
    """Why it was not measured."""

    @property
    def key(self) -> str:
        """Return its name."""
        return self.variant


class FormatsReport(Report):
    """The whole comparison."""

    about: Literal["formats"] = "formats"
    rows: int
    """Of each role, at most."""
    entries: tuple[Entry, ...] = ()
