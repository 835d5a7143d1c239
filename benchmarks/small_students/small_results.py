"""The stored results: what each file of each model reached on each set with each seed, and the goals."""

from typing import Literal

from benchmarks.report_store import Report
from compress.measure.quality.quality_result import Difference
from compress.measure.result_base import ResultModel

TEACHER = "teacher/torch-fp32"
"""What all others are compared with: the teacher as people run it."""
SINGLE_TEXTS = ("sst2", "ag_news", "snips_intents")
WITH_TEXTS = "_texts"
"""After a set's name: with more texts of train, without their labels."""


class Entry(ResultModel):
    """One contestant on one set with one seed."""

    set: str
    seed: int
    contestant: str
    """A row of the run (`static/numpy-int8`), or another tool."""
    score: float | None = None
    """On test, in the set's metric."""
    kept: float | None = None
    """Its score over the teacher's."""
    loss: float | None = None
    """Of a cascade: the teacher's score minus its own on test."""
    error: float | None = None
    """Standard error of the loss."""
    share: float | None = None
    """Of a cascade: the texts of test that the first model answers."""
    megabytes: float | None = None
    """Of all files that predicting needs."""
    minutes: float | None = None
    """Of its own training."""
    milliseconds: float | None = None
    """Of the model alone for one text: the median, of a cascade the mean."""
    end_to_end: float | None = None
    """From one text to its answer, likewise."""
    faster: float | None = None
    """Times faster than the teacher, the model alone, in the same rounds."""
    faster_end_to_end: float | None = None
    rows_per_second: float | None = None
    """In bulk, on one core."""
    versus_model2vec: Difference | None = None
    """Its score minus model2vec's on the same rows."""
    processor: str | None = None
    reason: str | None = None
    """Why there is no score."""

    @property
    def key(self) -> str:
        """Return its name."""
        return f"{self.set}/{self.seed}/{self.contestant}"

    @property
    def is_cascade(self) -> bool:
        """Whether two models answer."""
        return self.contestant.endswith("/cascade")


class SmallReport(Report):
    """The whole comparison."""

    about: Literal["small_students"] = "small_students"
    rows: int
    """Of each role, at most."""
    allowed: float = 0.01
    """What a cascade may lose, as the gate is told."""
    entries: tuple[Entry, ...] = ()

    def of(self, name: str, seed: int | None = None) -> list[Entry]:
        """Return the entries of a set that have a score, of one seed or all."""
        return [
            each for each in self.entries if each.set == name and seed in (None, each.seed) and each.score is not None
        ]

    @property
    def sets(self) -> tuple[str, ...]:
        """Return the sets with results."""
        return tuple(dict.fromkeys(each.set for each in self.entries))
