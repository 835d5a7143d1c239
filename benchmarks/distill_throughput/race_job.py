"""The input and output of every contestant. It runs in their environments too, so it needs only Python."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

JOB = "job.json"
RESULT_FILE = "answer.json"
STUDENT = "trained.safetensors"


@dataclass(frozen=True)
class Job:
    """One distillation, the same for all."""

    teacher: Path
    """A model folder with its tokenizer."""
    student: Path
    """A model folder: the student before training."""
    rows: Path
    """A line of JSON each: our canonical `row`, and for the others its `input_ids` and `label`."""
    output: Path
    """A folder for the contestant's result and the trained student."""
    pairs: tuple[tuple[int, int], ...]
    """Student layer and the teacher layer that it is compared with, both from 0."""
    count: int
    """Rows an epoch, a multiple of the batch."""
    batch: int = 32
    length: int = 128
    epochs: int = 1
    untimed: int = 0
    """Rows that are trained on before the clock starts, those of earlier epochs included."""
    rate: float = 1e-4
    temperature: float = 4.0
    seed: int = 0
    cache: bool = False
    """Whether compress caches the teacher's outputs between epochs."""

    @property
    def updates(self) -> int:
        """Of all epochs."""
        return self.epochs * self.count // self.batch

    def write(self) -> Path:
        """Write the job for the contestant."""
        path = self.output / JOB
        path.write_text(json.dumps(asdict(self), default=str), encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: Path) -> Job:
        """Read a job that `write` wrote."""
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        folders = {name: Path(values[name]) for name in ("teacher", "student", "rows", "output")}
        return cls(**{**values, **folders, "pairs": tuple((ours, theirs) for ours, theirs in values["pairs"])})

    def lines(self) -> Iterator[dict[str, Any]]:
        """The rows of an epoch."""
        with self.rows.open(encoding="utf-8") as lines:
            for _, line in zip(range(self.count), lines, strict=False):
                yield json.loads(line)


class Clock:
    """Times training steps: everything from the end of one to the end of the next, but for the first ones."""

    def __init__(self, untimed: int, now: Callable[[], float] = time.perf_counter) -> None:
        self._untimed, self._now = untimed, now
        self._seen = 0
        self._start: tuple[float, int] | None = None
        self.rows = 0
        """Timed rows."""
        self.seconds = 0.0

    def step(self, rows: int) -> None:
        """Record the end of a step over so many rows."""
        self._seen += rows
        if self._start is not None:
            self.seconds, self.rows = self._now() - self._start[0], self._seen - self._start[1]
        elif self._seen >= self._untimed:
            self._start = self._now(), self._seen


def run_contestant(distil: Callable[[Job, Clock], str]) -> None:
    """Run a contestant on the job that the command line names, and write its result.

    ``distil`` trains and saves the student, and returns the precision in which it did.
    """
    job = Job.read(Path(sys.argv[1]))
    clock = Clock(job.untimed)
    precision = distil(job, clock)
    result = {"rows": clock.rows, "seconds": clock.seconds, "precision": precision}
    (job.output / RESULT_FILE).write_text(json.dumps(result), encoding="utf-8")
