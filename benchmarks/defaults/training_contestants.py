"""The default recipe and what it is compared with; each trains on the rows that the default recipe prepared."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding, PreTrainedModel, Trainer
from transformers import TrainingArguments as Arguments

from benchmarks.defaults.comparison import Entry
from benchmarks.defaults.real_sets import SETS
from benchmarks.distill_throughput.environments import TORCH, Environment, NotInstalled
from benchmarks.finished_run import FinishedRun
from compress.data.encode import encode_rows
from compress.errors import CompressError
from compress.measure.quality.bootstrap_scorer import BootstrapScorer
from compress.measure.timing.worker_process import error_line
from compress.models.fetch import fetch
from compress.models.load_save import load_model, load_tokenizer
from compress.pipeline.step_store import StepStore
from compress.recipe.training_schema import Finetune
from compress.report.report_schema import Report
from compress.storage.atomic_write import atomic_write
from compress.tasks import kind_of
from compress.train.core.training_data import fast_tokenizer
from compress.train.finetune import finetune
from compress.train.save_trained import predict_role

TEACHER = "minilm-l6"
GRIDS: Mapping[str, tuple[Sequence[float], Sequence[float]]] = {
    "full": ((2e-5, 5e-5, 1e-4, 2e-4, 5e-4), (2.0, 5.0, 10.0)),
    "small": ((5e-5, 1e-4, 3e-4), (3.0, 6.0)),
    "trial": ((2e-4,), (1.0,)),
}
"""Rates and numbers of epochs."""
PAIRS = 4
"""Pairs for each row that SetFit's encoder is trained on."""
SETFIT = Environment(
    "setfit",
    (
        TORCH,
        "transformers==5.23.0",
        "accelerate==1.15.0",
        "datasets==5.2.0",
        "sentence-transformers==6.2.0",
        "setfit==1.2.0",
    ),
)


@dataclass(frozen=True)
class Case:
    """One set with one seed, in a folder of its own."""

    set: str
    seed: int
    folder: Path
    limit: int
    grid: str
    trial: bool

    @cached_property
    def ours(self) -> FinishedRun:
        """Our run."""
        return FinishedRun(self.folder, "recipe")

    def predictions(self, model: PreTrainedModel) -> NDArray[Any]:
        """Return a model's predictions on test."""
        return predict_role(
            model, load_tokenizer(fetch(TEACHER)), self.ours.roles, "test", self.ours.roles.info.task_info
        )

    def judge(self, contestant: str, predictions: NDArray[Any], seconds: float, **facts: Any) -> Entry:
        """Return the score on test, and the comparison with the default recipe's teacher."""
        task, rows = self.ours.roles.info.task_info, self.ours.roles.rows("test")
        kind = kind_of(task)
        gold, scorer = kind.gold(rows), BootstrapScorer(kind, task)
        ours = self.predictions(load_model(self.ours.step("finetune"), task))
        return Entry(
            set=self.set,
            seed=self.seed,
            contestant=contestant,
            scores={contestant: scorer.primary(predictions, gold).value},
            versus=scorer.difference(ours, predictions, gold),
            seconds=seconds,
            **facts,
        )


def run_default_recipe(case: Case) -> Entry:
    """Run what `compress init` writes, untouched but for the data, the number of rows and the seed.

    Steps that a killed run finished are kept; the one that was running starts again, so that its seconds are all.
    """
    case.folder.mkdir(parents=True, exist_ok=True)
    (case.folder / "recipe.yaml").unlink(missing_ok=True)
    shutil.rmtree(StepStore(case.folder / "runs").steps / ".partial", ignore_errors=True)
    section = SETS[case.set].section(case.folder.parent)
    data = {**section.pop("data"), "limit": case.limit}
    train, named = data.pop("train"), "kind" not in section
    words = [f"--task={section.pop('name')}"] if named else [f"--kind={section.pop('kind')}"]
    if not named:
        words += [f"--label={section.pop('label')}", *(f"--text={column}" for column in section.pop("text"))]
    settings = [(f"task.data.{key}", value) for key, value in data.items()]
    settings += [(f"task.{key}", value) for key, value in section.items()] + [("seed", case.seed)]
    _compress(case, "init", "recipe.yaml", f"--train={train}", *words)
    overrides = [word for key, value in settings for word in ("--set", f"{key}={json.dumps(value)}")]
    _compress(case, "run", "recipe.yaml", *overrides)
    seconds = {step.name: step.seconds for step in case.ours.report.steps if step.seconds is not None}  # not skipped
    return Entry(
        set=case.set,
        seed=case.seed,
        contestant="ours",
        scores=dict(_scores(case.ours.report)),
        seconds=sum(seconds.values()),
        training=seconds.get("finetune"),
    )


def _compress(case: Case, *words: str) -> None:
    """Run a command; exit code 3 (the gate was missed) has a report too."""
    command = [sys.executable, "-m", "compress", *words]
    done = subprocess.run(command, cwd=case.folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise CompressError(f"compress {words[0]}: {error_line(done.stderr)}")


def _scores(report: Report) -> Iterator[tuple[str, float]]:
    """Yield the scores on test of the baselines, the teacher, the pruned model and the winner."""
    for name, quality in (("bag of words", report.floor), ("probe", report.probe)):
        if quality is not None:
            yield name, quality.primary.value
    verdict = report.verdicts[0]
    tests = {row.key: result.test for row, result in report.rows_at(verdict.target) if result.test}
    for name, key in (("teacher", report.teacher), ("pruned", "pruned/torch-fp32"), ("winner", verdict.winner)):
        if key in tests:
            yield name, tests[key].primary.value


def run_trainer(case: Case) -> Entry:
    """Train with transformers' Trainer and its default settings, a new head on the family's own pooling."""
    task, started = case.ours.roles.info.task_info, time.monotonic()
    source = fetch(TEACHER)
    tokenizer, model = load_tokenizer(source), load_model(source, task, seed=case.seed, pooling="cls")
    encoded = encode_rows(case.ours.roles.rows("train"), task, fast_tokenizer(model.config, tokenizer))
    has_tags = task.kind == "token_classification"
    label, collate = ("labels", DataCollatorForTokenClassification) if has_tags else ("label", DataCollatorWithPadding)
    examples = [_example(encoded.example(number), label) for number in range(len(encoded))]
    arguments = Arguments(
        output_dir=str(case.folder / "trainer"),
        seed=case.seed,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    Trainer(model, arguments, collate(tokenizer), examples).train()
    seconds = time.monotonic() - started
    return case.judge("trainer", case.predictions(model), seconds, settings="5e-05, 3 epochs, batch 8")


def _example(example: dict[str, Any], label: str) -> dict[str, Any]:
    """Return an example with the names that collators expect."""
    names = {"input_ids": "input_ids", "token_type_ids": "token_type_ids", "labels": label, "label": label}
    return {names[name]: np.asarray(value).tolist() for name, value in example.items() if name in names}


def run_grid(case: Case) -> Entry:
    """Fine-tune with every rate and number of epochs of a grid; the best on select is scored on test."""
    stored = case.folder / "grid.json"
    tried: dict[str, tuple[float, float]] = json.loads(stored.read_text()) if stored.exists() else {}
    for rate, epochs in product(*GRIDS[case.grid]):
        name = f"rate {rate:g}, {epochs:g} epochs"
        if name not in tried:
            tried[name] = _train(case, Finetune(learning_rate=rate, epochs=epochs, batch_size=32), name)
            atomic_write(stored, json.dumps(tried))
        best = max(tried, key=lambda each: tried[each][0])
        for beaten in tried.keys() - {best}:
            shutil.rmtree(case.folder / beaten, ignore_errors=True)
    predictions = case.predictions(load_model(case.folder / best, case.ours.roles.info.task_info))
    total = sum(seconds for _, seconds in tried.values())
    return case.judge("grid", predictions, total, training=tried[best][1], settings=best)


def _train(case: Case, settings: Finetune, name: str) -> tuple[float, float]:
    """Return the score on select and the seconds of one fine-tuning; a killed one starts again."""
    work, started = case.folder / name, time.monotonic()
    shutil.rmtree(work, ignore_errors=True)
    result = finetune(TEACHER, case.ours.step("data"), settings, case.seed, work).result
    assert result is not None
    assert result.score is not None
    return result.score, time.monotonic() - started


def run_setfit(case: Case) -> Entry:
    """Train SetFit on the same encoder, in an environment of its own; it classifies single texts only."""
    task, rows = case.ours.roles.info.task_info, case.ours.roles.rows("train")
    if task.kind != "classification" or rows[0]["text_pair"] is not None:
        raise CompressError("SetFit classifies single texts only.")
    try:
        SETFIT.install()
    except NotInstalled as error:
        raise CompressError(str(error)) from error
    output, started = case.folder / "setfit.json", time.monotonic()
    job = {
        "model": str(fetch(TEACHER)),
        "max_length": task.max_length,
        "train": [(row["text"], row["label"]) for row in rows],
        "test": [row["text"] for row in case.ours.roles.rows("test")],
        "seed": case.seed,
        "iterations": 1 if case.trial else PAIRS // 2,
        "output": str(output),
    }
    (case.folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    command = [str(SETFIT.python), str(Path(__file__).with_name("setfit_job.py")), str(case.folder / "job.json")]
    done = subprocess.run(command, cwd=case.folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompressError(f"SetFit failed: {error_line(done.stderr)}")
    predictions = np.array(json.loads(output.read_text(encoding="utf-8")))
    return case.judge("setfit", predictions, time.monotonic() - started, settings=f"{PAIRS} pairs a row")


CONTESTANTS: dict[str, Callable[[Case], Entry]] = {
    "ours": run_default_recipe,
    "trainer": run_trainer,
    "grid": run_grid,
    "setfit": run_setfit,
}
"""In the order they run: the others need the first one's rows."""
