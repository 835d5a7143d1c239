"""`python -m benchmarks.light_students`: what each part of a student without attention is worth.

Students of one teacher are trained alike, each without one part of the default or with another one, and scored on rows
that are held back from train.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.real_task import LEARNT, RealTask, add_teacher
from benchmarks.report_store import positive
from compress.console import Console
from compress.data.tokenizer import TextTokenizer
from compress.errors import CompressError
from compress.models import load
from compress.recipe.distill_schema import LightDistill
from compress.recipe.student_schema import LightStudent
from compress.train.core.training_data import make_evaluator
from compress.train.light_student import distill_light

SMALL = {"hidden": 8, "head_width": 8}
"""Sizes of a trial."""

STUDENTS: Mapping[str, dict[str, Any]] = {
    "static": {},
    "the pieces of train alone": {"vocabulary": "seen"},
    "a hidden layer of 512": {"head_width": 512},
    "vectors of 128 numbers": {"hidden": 128},
    "vectors of 128 numbers and a hidden layer of 512": {"hidden": 128, "head_width": 512},
    "n-grams of up to three pieces": {"ngrams": 3},
    "n-grams of up to four pieces": {"ngrams": 4},
    "random vectors": {"start": []},
    "random directions in place of principal components": {"start": ["pieces", "frequencies"]},
    "no weights by frequency": {"start": ["pieces", "components"]},
    "n-grams that start as the teacher reads them": {
        "ngrams": 3,
        "start": ["pieces", "ngrams", "components", "frequencies"],
    },
    "conv, one convolution": {"kind": "conv"},
    "conv, two convolutions": {"kind": "conv", "convolutions": 2},
    "conv, one convolution and n-grams of up to three pieces": {"kind": "conv", "ngrams": 3},
}
"""By what differs from the default."""


def score_of(student: Mapping[str, Any], real: RealTask, options: argparse.Namespace, folder: Path) -> float:
    """Return the score on select of a student that is trained in ``folder``."""
    folder.mkdir()
    sizes = SMALL if options.trial else {}
    settings = LightDistill(epochs=options.epochs, learning_rate=options.rate)
    made = LightStudent(**{"kind": "static", **sizes, **student})
    trained = distill_light(real.teacher, made, real.data, settings, options.seed, folder)
    assert trained.result is not None
    assert trained.result.score is not None
    return trained.result.score


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = parse(arguments)
    console = Console(options.format)
    try:
        with tempfile.TemporaryDirectory(prefix="compress-light-") as name:
            work = Path(name)
            real = RealTask(work, console, options.rows, trial=options.trial, teacher=options.teacher)
            select = real.roles.rows("select")
            evaluate = make_evaluator(select, real.task, TextTokenizer.load(real.teacher))
            console.note(f"{real.source}, {real.task.metric} on {len(select):,} rows held back from train")
            rows = [{"student": "the teacher", "score": _shown(evaluate(load(real.teacher)))}]
            for number, (title, student) in enumerate(STUDENTS.items()):
                score = score_of(student, real, options, work / f"student-{number}")
                rows.append({"student": title, "score": _shown(score)})
                console.note(" | ".join(rows[-1].values()))
    except CompressError as error:
        console.error(error)
        return error.exit_code
    console.table(rows)
    return 0


def _shown(score: float) -> str:
    return f"{100 * score:.1f}"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.light_students", description=__doc__)
    add_teacher(parser)
    parser.add_argument("--rows", type=positive, help="of train, at least and by default 8000")
    parser.add_argument("--epochs", type=float, help="of each student (default: 8)")
    parser.add_argument("--rate", type=float, default=3e-3, help="the learning rate (default: 0.003)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trial", action="store_true", help="a small run that decides nothing")
    parser.add_argument("--format", choices=("human", "json", "quiet"), default="human")
    options = parser.parse_args(arguments)
    options.rows = options.rows or 64 if options.trial else max(options.rows or 0, LEARNT)
    options.epochs = options.epochs or (0.2 if options.trial else 8.0)
    return options


if __name__ == "__main__":
    sys.exit(main())
