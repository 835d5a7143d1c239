"""The stored results: one entry for each file of each model."""

from collections.abc import Mapping
from typing import Literal

from benchmarks.report_store import Report
from compress.measure.result_base import ResultModel

TORCH, FP32 = "PyTorch fp32", "onnx-fp32"
"""What speeds are compared with."""


class Entry(ResultModel):
    """One file of a model: a variant of ours, or what another tool made of the same weights."""

    model: str
    file: str
    megabytes: float | None = None
    """Of the weights and graph."""
    score: float | None = None
    """Accuracy on test."""
    agreement: float | None = None
    """Share of test on which it gives PyTorch's class."""
    milliseconds: Mapping[str, float] = {}
    """Median of a call, by session: `1 thread, batch 1, 128 pieces`."""
    rate_shares: Mapping[str, float] = {}
    """Share of the machine's matrix rate in the file's own precision, by session."""
    reason: str | None = None
    """Why there is no file."""

    @property
    def key(self) -> str:
        """Return its name."""
        return f"{self.model}/{self.file}"


class Int8Report(Report):
    """The whole comparison."""

    about: Literal["int8"] = "int8"
    rows: int
    """Of each role, at most."""
    entries: tuple[Entry, ...] = ()

    def entry(self, model: str, file: str) -> Entry | None:
        """Return one result."""
        return next((each for each in self.entries if (each.model, each.file) == (model, file)), None)

    def speedup(self, entry: Entry, session: str, against: str) -> float | None:
        """Return how many times faster a file is than another of the same model in the same session."""
        other = self.entry(entry.model, against)
        if other is None or not (ours := entry.milliseconds.get(session)):
            return None
        theirs = other.milliseconds.get(session)
        return theirs / ours if theirs else None
