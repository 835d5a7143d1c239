"""A finished run of a recipe, for benchmarks that compare others with it on the same rows, and the set it is of."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.report.report_schema import REPORT_FILE, Report, read_report


class FinishedRun:
    """The report, the rows and the steps of the run ``name`` below ``folder``, each read once."""

    def __init__(self, folder: Path, name: str) -> None:
        self.runs, self.name = folder / "runs", name

    @property
    def exists(self) -> bool:
        """Whether it has a report."""
        return (self.runs / self.name / REPORT_FILE).is_file()

    @cached_property
    def report(self) -> Report:
        """Its report."""
        return read_report(self.runs / self.name)

    @cached_property
    def roles(self) -> PreparedData:
        """The rows that it trained on, chose with and was scored on."""
        return load_prepared(self.step("data"))

    def step(self, name: str) -> Path:
        """Return the folder of a step."""
        step = next(step for step in self.report.steps if step.name == name)
        return self.runs / ".steps" / f"{step.name}-{step.fingerprint}"


@dataclass(frozen=True)
class SetCase:
    """One set with one seed."""

    set: str
    seed: int
    work: Path
    rows: int
    trial: bool

    @property
    def folder(self) -> Path:
        """Where its runs are."""
        return self.work / f"{self.set}-{self.seed}-{self.rows}"
