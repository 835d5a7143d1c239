"""The stored results of the comparison: one entry for each way to make a model smaller, on each set."""

from collections.abc import Mapping
from typing import Literal

from benchmarks.report_store import Report
from compress.measure.result_base import ResultModel


class Entry(ResultModel):
    """One pruned model, compared with the model before pruning in the same variant."""

    set: str
    case: str
    scores: Mapping[str, float] = {}
    """On test, by variant."""
    before: Mapping[str, float] = {}
    """Of the model before pruning."""
    speedups: Mapping[str, float] = {}
    """How many times faster, by `VARIANT TARGET`: `onnx-int8 own-lengths`."""
    parameters: float | None = None
    """Remaining share of the model's parameters outside its word vectors."""
    cut_seconds: float | None = None
    recover_seconds: float | None = None
    reason: str | None = None
    """Why there is no result: also a goal that was refused."""

    @property
    def key(self) -> str:
        """Return its name."""
        return f"{self.set}/{self.case}"

    def kept(self, variant: str) -> float | None:
        """Return the share of the score that is kept; None where it was not measured."""
        if not self.before.get(variant) or variant not in self.scores:
            return None
        return self.scores[variant] / self.before[variant]


class PruningReport(Report):
    """The whole comparison."""

    about: Literal["pruning"] = "pruning"
    rows: int
    """Of each role, at most."""
    cases: int = 0
    """Of each set, if all of them run."""
    entries: tuple[Entry, ...] = ()

    def entry(self, key: str) -> Entry | None:
        """Return the result with this key."""
        return next((entry for entry in self.entries if entry.key == key), None)
