"""`python -m benchmarks.defaults.sweep`: scores on select by learning rate, epochs and distillation settings.

Fine-tunes MiniLM from its probe on samples of real sets; distils students of half its layers from the best of these
teachers. Each training is one line of a JSON-lines file, appended when it ends: a killed sweep goes on with what is
missing. Only rows of train and select are used.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from benchmarks.defaults.real_sets import SETS
from benchmarks.report_store import chosen, positive
from compress.console import Console
from compress.errors import CompressError
from compress.measure.machine_snapshot import snapshot_machine
from compress.models.fetch import fetch
from compress.models.load_save import load_model, load_tokenizer
from compress.models.student.build_student import build_student
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import Student
from compress.recipe.training_schema import Finetune
from compress.tasks.base import Row
from compress.train.core import training_data
from compress.train.core.optimizer import load_weights, named_weights
from compress.train.core.seed_restarts import context_in_memory, train_best
from compress.train.distill import distill_from_model
from compress.train.last_layer_fit import fit_last_layer
from compress.train.objective import TaskObjective

TEACHER = "minilm-l6"
SELECT = 600
"""Rows on which each epoch is scored."""
BATCH = 32
SHARED = {"precision": "fp32", "batch_size": BATCH}
STUDENTS: Sequence[Mapping[str, Any]] = (
    {},
    {"learning_rate": 4e-4},
    {"losses": {"soft_label": 1.0, "hidden_state": 1.0, "attention": 1.0}},
    {"hard_label": 0.0},
    {"temperature": 2.0},
    {"learning_rate": 1e-4},
    {"epochs": 3},
    {"epochs": 12},
)
"""Changes of `STUDENT`, one at a time."""
STUDENT = {"losses": {"soft_label": 1.0, "hidden_state": 1.0}, "hard_label": 0.5, "learning_rate": 2e-4, "epochs": 6}


@dataclass(frozen=True)
class Cell:
    """One training of the sweep."""

    purpose: str
    """`finetune` or `distill`."""
    set: str
    rows: int
    settings: Mapping[str, Any]
    """What differs from the defaults of `Finetune` or `Distill`."""

    @property
    def key(self) -> str:
        """Return what distinguishes it from the others."""
        return json.dumps([self.purpose, self.set, self.rows, self.settings], sort_keys=True)


def cells(given: argparse.Namespace) -> Iterator[Cell]:
    """Yield the trainings that were asked for."""
    tried = [
        {"learning_rate": rate, "epochs": epochs, **({"batch_size": batch} if batch != BATCH else {})}
        for rate in given.rates
        for epochs in given.epochs
        for batch in given.batches
    ]
    if given.purpose == "distill":
        tried = [{**STUDENT, **change} for change in STUDENTS]
    for settings in tried:
        yield from (Cell(given.purpose, name, rows, settings) for rows in given.sizes for name in given.sets)


class Sample:
    """Encoded rows of one set, and the teacher that is trained on them."""

    def __init__(self, name: str, size: int, work: Path) -> None:
        self.work = work / f"{name}-{size}"
        roles = SETS[name].prepare(work / name)
        self.task = roles.info.task_info
        self.train, self.select = draw(roles.rows("train"), size), draw(roles.rows("select"), SELECT)
        self.source = fetch(TEACHER)
        self.tokenizer = load_tokenizer(self.source)

    @cached_property
    def data(self) -> training_data.TrainingData:
        """The encoded rows."""
        model = load_model(self.source, self.task, pooling="mean")
        tokens = training_data.fast_tokenizer(model.config, self.tokenizer)
        return training_data.from_rows(self.train, self.select, self.task, tokens, Console("quiet"))

    def score(self, model: PreTrainedModel) -> float:
        """Return a model's score on select."""
        assert self.data.evaluate is not None
        model.train(False)
        return self.data.evaluate(model)

    def probe(self) -> PreTrainedModel:
        """Return the encoder with the head that fits it best."""
        model = load_model(self.source, self.task, pooling="mean")
        fit_last_layer(model, self.data.train, TaskObjective(self.task).loss_of, 0).apply_to(model)
        return model

    def teacher(self) -> PreTrainedModel:
        """Return the best fine-tuned model so far."""
        stored = self.work / "teacher.safetensors"
        if not stored.is_file():
            raise CompressError(
                f"there is no {stored}.", hint="run `finetune` first, with the same sets, sizes and work"
            )
        model = load_model(self.source, self.task, pooling="mean")
        load_weights(model, load_file(stored))
        return model

    def finetune(self, settings: Finetune) -> dict[str, Any]:
        """Return the scores of the probe and after each epoch; the best teacher of all settings is stored."""
        model = self.probe()
        before = self.score(model)
        objective = TaskObjective(self.task)
        with context_in_memory("finetune", 0, None, None, None) as context:
            _, result = train_best(lambda seed: model, lambda model, seed: objective, self.data, settings, context)
        scores = [evaluation.score for evaluation in result.history if evaluation.update]
        stored = self.work / "teacher.json"
        if not stored.exists() or json.loads(stored.read_text()) < result.score:
            self.work.mkdir(exist_ok=True)
            save_file(named_weights(model), self.work / "teacher.safetensors")
            stored.write_text(json.dumps(result.score))
        return {"start": before, "scores": scores, "score": result.score, "seconds": round(result.seconds, 1)}

    def distill(self, settings: Distill) -> dict[str, Any]:
        """Return the scores of the teacher, of the student before training, and of its best epoch."""
        teacher, started = self.teacher(), time.monotonic()
        student = build_student(teacher, Student(layers=0.5), self.task, seed=0)
        before = self.score(student)
        rows = self.train, self.select
        student = distill_from_model(teacher, student, self.tokenizer, *rows, self.task, settings)
        seconds = round(time.monotonic() - started, 1)
        return {"teacher": self.score(teacher), "start": before, "score": self.score(student), "seconds": seconds}


def draw(rows: Sequence[Row], count: int) -> list[Row]:
    """Return a random sample, the same each time; all rows where there are fewer."""
    numbers = np.random.default_rng(0).permutation(len(rows))[:count]
    return [rows[int(number)] for number in numbers]


def measure(cell: Cell, work: Path) -> dict[str, Any]:
    """Train once, and return what is stored."""
    sample, settings = Sample(cell.set, cell.rows, work), {**SHARED, **cell.settings}
    result = (
        sample.finetune(Finetune(**settings)) if cell.purpose == "finetune" else sample.distill(Distill(**settings))
    )
    facts = {"metric": sample.task.metric, "train": len(sample.train), "select": len(sample.select)}
    machine = {"cpu": snapshot_machine().cpu, "threads": os.environ.get("OMP_NUM_THREADS")}
    return {"key": cell.key, "purpose": cell.purpose, "set": cell.set, **facts, **settings, **result, **machine}


def line(row: Mapping[str, Any]) -> dict[str, str]:
    """Return a row of the printed table."""
    scores = [score for score in row.get("scores", ()) if score is not None]
    best = scores.index(max(scores)) + 1 if scores else None
    return {
        "purpose": row["purpose"],
        "set": row["set"],
        "rows": str(row["train"]),
        "rate": f"{row['learning_rate']:g}",
        "batch": str(row["batch_size"]),
        "epochs": f"{row['epochs']:g}",
        "start": f"{row['start']:.4f}",
        "best epoch": str(best or ""),
        "score": f"{row['score']:.4f}",
        "other": ", ".join(f"{name} {row[name]}" for name in ("losses", "hard_label", "temperature") if name in row),
    }


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows measured so far."""
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, and print everything."""
    given = parse(arguments)
    console, started = Console("human"), time.monotonic()
    known = {row["key"] for row in read_rows(given.out)}
    for cell in cells(given):
        if cell.key in known or time.monotonic() - started > 60 * given.minutes:
            continue
        try:
            row = measure(cell, given.work)
        except CompressError as error:
            console.error(error)
            return error.exit_code
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        console.note(" | ".join(line(row).values()))
    console.table([line(row) for row in read_rows(given.out)])
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults.sweep", description=__doc__)
    parser.add_argument("purpose", choices=("finetune", "distill"))
    parser.add_argument("--sets", type=lambda text: chosen(parser, "--sets", text, tuple(SETS)), default=tuple(SETS))
    parser.add_argument("--sizes", type=positive, nargs="+", default=[500, 2000], help="rows of train")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-4, 2e-4, 4e-4], help="of fine-tuning")
    parser.add_argument("--batches", type=positive, nargs="+", default=[BATCH], help="rows of a batch, of fine-tuning")
    parser.add_argument("--epochs", type=float, nargs="+", default=[8.0, 3.0], help="of fine-tuning")
    parser.add_argument("--minutes", type=float, default=60.0, help="no training starts later (default: 60)")
    parser.add_argument("--work", type=Path, required=True, help="folder of prepared rows and teachers, kept")
    parser.add_argument("--out", type=Path, default=Path("reports/defaults/sweep.jsonl"), help="measured rows")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
