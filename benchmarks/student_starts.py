"""`python -m benchmarks.student_starts`: scores of a student before training and after a short one.

Students of half the teacher's layers, most of them half as wide too, with every initialisation. Reported are the score
on test and the agreement with the teacher, before any training and after some updates of distillation with the default
losses, as means over seeds (of row order and random weights) with the lowest and highest.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedModel

from benchmarks.real_task import RealTask, add_teacher
from benchmarks.report_store import positive
from compress.console import Console
from compress.data.encode import encode_rows
from compress.data.tokenizer import TextTokenizer
from compress.errors import CompressError
from compress.measure.predict_rows import predict_encoded
from compress.models import build_student, load, load_tokenizer
from compress.recipe.training_schema import Distill, Student
from compress.tasks import kind_of
from compress.train.distill import distill_from_model
from compress.train.distillation.activation_importance import importance_for_student
from compress.train.evaluate import predict_function

TEST, TRIAL_TEST = 2000, 64
RATE = 1e-4
COLUMNS = ("start", "score before", "agreement with the teacher", "score after", "agreement after", "of the teacher's")


@dataclass(frozen=True)
class Start:
    """One way to begin."""

    name: str
    student: dict[str, Any]
    """In addition to half of the layers."""
    rate: float = RATE


class Known(NamedTuple):
    """A model's score, and how often its predictions agree with the teacher's."""

    score: float
    alike: float


Judge = Callable[[PreTrainedModel], Known]


def starts(width: int) -> Iterator[Start]:
    """All of them, for a teacher of this hidden size."""
    yield Start("layers: copied, as wide as the teacher", {})
    for name in ("svd", "slice"):
        yield Start(name, {"hidden": width // 2, "start": name})
    yield Start("random", {"hidden": width // 2, "start": "random"})
    yield Start("random, twice the rate", {"hidden": width // 2, "start": "random"}, 2 * RATE)


def judge_of(task_data: RealTask, teacher: PreTrainedModel, most: int) -> tuple[Judge, float]:
    """Scores a model on test and compares its decisions with the teacher's; and the teacher's own score."""
    rows, task, kind = task_data.first("test", most), task_data.task, kind_of(task_data.task)
    encoded, gold = encode_rows(rows, task, TextTokenizer.load(task_data.teacher)), kind.gold(rows)
    theirs = predict_encoded(predict_function(teacher), encoded, rows, task, batch=64)

    def judge(model: PreTrainedModel) -> Known:
        model.train(False)
        found = predict_encoded(predict_function(model), encoded, rows, task, batch=64)
        same = kind.same_decision(found, theirs)
        assert same is not None  # a classification decides
        return Known(kind.score(found, gold, task)[task.metric], float(same.mean()))

    return judge, kind.score(theirs, gold, task)[task.metric]


def both(
    start: Start, task_data: RealTask, teacher: PreTrainedModel, judge: Judge, seed: int, given: Any
) -> list[Known]:
    """Return one student's results before and after training."""
    rows, task = task_data.first("train", given.rows), task_data.task
    student = Student(layers=0.5, **start.student)
    importance = importance_for_student(student, teacher, rows, task, TextTokenizer.load(task_data.teacher), seed)
    model = build_student(teacher, student, task, seed=seed, importance=importance)
    before = judge(model)
    epochs = 1 + given.updates * given.batch / len(rows)  # enough; the updates end it
    settings = Distill(epochs=epochs, max_steps=given.updates, batch_size=given.batch, learning_rate=start.rate)
    model = distill_from_model(teacher, model, load_tokenizer(task_data.teacher), rows, (), task, settings, seed=seed)
    return [before, judge(model)]


def line(start: Start, found: Sequence[Sequence[Known]], teacher: float) -> dict[str, str]:
    """A start's row of the table."""
    cells = [format_range(values) for known in zip(*found, strict=True) for values in zip(*known, strict=True)]
    share = statistics.fmean(after.score for _, after in found) / teacher
    return dict(zip(COLUMNS, (start.name, *cells, f"{share:.3f}"), strict=True))


def format_range(values: Sequence[float]) -> str:
    """Return the mean, and the lowest and highest where they differ."""
    mean, low, high = (f"{100 * value:.1f}" for value in (statistics.fmean(values), min(values), max(values)))
    return f"{mean} %" if low == high else f"{mean} % ({low} to {high})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    given = parse(arguments)
    console = Console(given.format)
    try:
        with tempfile.TemporaryDirectory(prefix="compress-starts-") as work:
            task_data = RealTask(Path(work), console, given.rows, trial=given.trial, teacher=given.teacher)
            teacher = load(task_data.teacher)
            judge, score = judge_of(task_data, teacher, TRIAL_TEST if given.trial else TEST)
            console.note(f"{task_data.source}, {task_data.task.metric} on test; the teacher has {100 * score:.1f} %")
            rows = []
            for start in starts(teacher.config.hidden_size):
                found = [both(start, task_data, teacher, judge, seed, given) for seed in range(given.seeds)]
                rows.append(line(start, found, score))
                console.note(" | ".join(rows[-1].values()))
    except CompressError as error:
        console.error(error)
        return error.exit_code
    console.table(rows)
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.student_starts", description=__doc__)
    add_teacher(parser)
    parser.add_argument("--updates", type=positive, help="of each student (default: 120)")
    parser.add_argument("--batch", type=positive, default=16, help="rows of an update (default: 16)")
    parser.add_argument("--rows", type=positive, help="to learn from (default: 1500)")
    parser.add_argument("--seeds", type=positive, help="students of each start (default: 3)")
    parser.add_argument("--trial", action="store_true", help="a small run that decides nothing")
    parser.add_argument("--format", choices=("human", "json", "quiet"), default="human")
    given = parser.parse_args(arguments)
    given.updates = given.updates or (2 if given.trial else 120)
    given.rows = given.rows or (64 if given.trial else 1500)
    given.seeds = given.seeds or (1 if given.trial else 3)
    return given


if __name__ == "__main__":
    sys.exit(main())
