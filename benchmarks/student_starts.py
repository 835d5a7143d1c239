"""`python -m benchmarks.student_starts`: scores of a student before training and after a short one.

Students of half the teacher's layers, most of them half as wide too, with every initialisation. Reported are the score
on test and the agreement with the teacher, before any training and after some updates of distillation with the default
losses, as means over seeds (of row order and random weights) with the lowest and highest.
"""

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
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import Student
from compress.tasks import kind_of
from compress.train.core.training_data import predict_function
from compress.train.distill import distill_from_model
from compress.train.distillation.activation_importance import importance_for_student

TEST, TRIAL_TEST = 2000, 64
RATE = 1e-4
COLUMNS = ("start", "score before", "agreement with the teacher", "score after", "agreement after", "of the teacher's")


@dataclass(frozen=True)
class Start:
    """One initialisation of a student."""

    name: str
    student: dict[str, Any]
    """In addition to half of the layers."""
    rate: float = RATE


class Evaluation(NamedTuple):
    """A model's score, and how often its predictions agree with the teacher's."""

    score: float
    agreement: float


Evaluator = Callable[[PreTrainedModel], Evaluation]


def starts(width: int) -> Iterator[Start]:
    """Yield every initialisation, for a teacher of this hidden size."""
    yield Start("layers: copied, as wide as the teacher", {})
    for name in ("svd", "slice"):
        yield Start(name, {"hidden": width // 2, "start": name})
    yield Start("random", {"hidden": width // 2, "start": "random"})
    yield Start("random, twice the rate", {"hidden": width // 2, "start": "random"}, 2 * RATE)


def make_evaluator(task_data: RealTask, teacher: PreTrainedModel, most: int) -> tuple[Evaluator, float]:
    """Return a function that scores a model on test and compares it with the teacher, and the teacher's score."""
    rows, task, kind = task_data.first("test", most), task_data.task, kind_of(task_data.task)
    encoded, gold = encode_rows(rows, task, TextTokenizer.load(task_data.teacher)), kind.gold(rows)
    theirs = predict_encoded(predict_function(teacher), encoded, rows, task, batch=64)

    def evaluate_model(model: PreTrainedModel) -> Evaluation:
        model.train(False)
        results = predict_encoded(predict_function(model), encoded, rows, task, batch=64)
        agrees = kind.same_decision(results, theirs)
        assert agrees is not None  # a classification decides
        return Evaluation(kind.score(results, gold, task)[task.metric], float(agrees.mean()))

    return evaluate_model, kind.score(theirs, gold, task)[task.metric]


def before_and_after(
    start: Start, task_data: RealTask, teacher: PreTrainedModel, evaluate_model: Evaluator, seed: int, options: Any
) -> list[Evaluation]:
    """Return one student's results before and after training."""
    rows, task = task_data.first("train", options.rows), task_data.task
    student = Student(layers=0.5, **start.student)
    importance = importance_for_student(student, teacher, rows, task, TextTokenizer.load(task_data.teacher), seed)
    model = build_student(teacher, student, task, seed=seed, importance=importance)
    before = evaluate_model(model)
    epochs = 1 + options.updates * options.batch / len(rows)  # enough: max_steps ends the training
    settings = Distill(epochs=epochs, max_steps=options.updates, batch_size=options.batch, learning_rate=start.rate)
    model = distill_from_model(teacher, model, load_tokenizer(task_data.teacher), rows, (), task, settings, seed=seed)
    return [before, evaluate_model(model)]


def table_row(start: Start, results: Sequence[Sequence[Evaluation]], teacher: float) -> dict[str, str]:
    """Return the table row of an initialisation."""
    cells = [
        format_range(values) for evaluations in zip(*results, strict=True) for values in zip(*evaluations, strict=True)
    ]
    share = statistics.fmean(after.score for _, after in results) / teacher
    return dict(zip(COLUMNS, (start.name, *cells, f"{share:.3f}"), strict=True))


def format_range(values: Sequence[float]) -> str:
    """Return the mean, and the lowest and highest where they differ."""
    mean, low, high = (f"{100 * value:.1f}" for value in (statistics.fmean(values), min(values), max(values)))
    return f"{mean} %" if low == high else f"{mean} % ({low} to {high})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = parse(arguments)
    console = Console(options.format)
    try:
        with tempfile.TemporaryDirectory(prefix="compress-starts-") as work:
            task_data = RealTask(Path(work), console, options.rows, trial=options.trial, teacher=options.teacher)
            teacher = load(task_data.teacher)
            evaluate_model, score = make_evaluator(task_data, teacher, TRIAL_TEST if options.trial else TEST)
            console.note(f"{task_data.source}, {task_data.task.metric} on test; the teacher has {100 * score:.1f} %")
            rows = []
            for start in starts(teacher.config.hidden_size):
                results = [
                    before_and_after(start, task_data, teacher, evaluate_model, seed, options)
                    for seed in range(options.seeds)
                ]
                rows.append(table_row(start, results, score))
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
    parser.add_argument("--rows", type=positive, help="of train (default: 1500)")
    parser.add_argument("--seeds", type=positive, help="students of each start (default: 3)")
    parser.add_argument("--trial", action="store_true", help="a small run that decides nothing")
    parser.add_argument("--format", choices=("human", "json", "quiet"), default="human")
    options = parser.parse_args(arguments)
    options.updates = options.updates or (2 if options.trial else 120)
    options.rows = options.rows or (64 if options.trial else 1500)
    options.seeds = options.seeds or (1 if options.trial else 3)
    return options


if __name__ == "__main__":
    sys.exit(main())
