"""One set with one seed: the run that makes our students, and the other tools on the same rows."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from benchmarks.defaults.real_sets import SETS
from benchmarks.distill_throughput.environments import TORCH, Environment, NotInstalled
from benchmarks.finished_run import FinishedRun, SetCase
from benchmarks.small_students.small_results import TEACHER, WITH_TEXTS, Entry
from compress.bulk.bulk_predictor import BulkPredictor
from compress.errors import CompressError
from compress.measure import BootstrapScorer, Job, time_jobs
from compress.measure.quality.quality_result import TWO_SIDED, Difference
from compress.measure.timing.latency import Latency, ratio
from compress.measure.timing.worker_process import error_line
from compress.models.fetch import fetch
from compress.pipeline.steps.measure_step import sample_texts
from compress.recipe.measure_schema import Measure
from compress.report.report_schema import LedgerRow
from compress.runtime.predictor import Placement
from compress.storage.file_names import ANSWERS_FILE
from compress.tasks import kind_of

ENCODER = "minilm-l6"
STUDENTS: tuple[Any, ...] = (
    {"layers": 0.5},
    {"kind": "static"},
    {"kind": "static", "hidden": 128, "head_width": 512},
    {"kind": "static", "hidden": 128, "head_width": 512, "ngrams": 3},
    {"kind": "conv"},
    {"kind": "conv", "hidden": 128, "head_width": 512},
    {"kind": "conv", "hidden": 256, "head_width": 512},
)
"""A transformer of half the layers, and three sizes of both kinds; the largest static one has n-grams."""
NAMES = {"static": "static", "static-2": "static, wide", "static-3": "static, wide, n-grams"}
NAMES |= {"conv": "conv", "conv-2": "conv, wide", "conv-3": "conv, wider", "student": "half the layers"}
"""What the page calls the models of a run."""
CASCADES = [{"first": first, "then": then} for first in ("static-2", "conv-2") for then in ("student", "teacher")]
TEXTS = 20_000
"""Rows of train of a set with texts: most of them without their label. Its transformer is left out."""
TRIAL = {"epochs": 1}
MODEL2VEC = Environment("model2vec", (TORCH, "model2vec[distill,train]==0.10.0", "scikit-learn==1.9.1"))
FASTTEXT = Environment("fasttext", ("fasttext-wheel==0.9.2", "numpy<2"))
TIMED_TEXTS = 64
"""Of which other tools time each alone."""


class Case(SetCase):
    """Students and other tools on one set with one seed."""

    @cached_property
    def ours(self) -> FinishedRun:
        """Our run."""
        return FinishedRun(self.folder, "small")

    def recipe(self) -> dict[str, Any]:
        """Return the recipe; seeds after the first have its teacher."""
        has_texts = self.set.endswith(WITH_TEXTS)
        section = SETS[self.set.removesuffix(WITH_TEXTS)].section(self.work)
        section["data"]["limit"] = self.rows
        if has_texts:
            section["data"] |= {"limit": 2 * self.rows if self.trial else TEXTS, "labelled": self.rows}
        students = [each for each in STUDENTS if "kind" in each or not has_texts]
        students = [{**each, **(TRIAL if self.trial and "kind" in each else {})} for each in students]
        recipe: dict[str, Any] = {
            "name": "small",
            "seed": self.seed,
            "task": section,
            "teacher": ENCODER,
            "student": students,
            "quantize": {"methods": ["dynamic", "rows-8bit", "rows-4bit"]},
            "measure": {"rounds": 3, "processes": 1, "seconds": 0.02, "memory": []},
        }
        if self.set != "stsb":  # a number says nothing about how sure a model is of it
            recipe["cascade"] = [each for each in CASCADES if each["then"] == "teacher" or not has_texts]
        if self.seed:
            first = Case(self.set, 0, self.work, self.rows, self.trial)
            recipe |= {"teacher": str(first.ours.step("finetune")), "finetune": False}
        return recipe

    def run(self) -> None:
        """Train, export and score our students; a killed run goes on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "small.yaml").write_text(yaml.safe_dump(self.recipe(), sort_keys=False), encoding="utf-8")
        command = [sys.executable, "-m", "compress", "run", "small.yaml", "--format", "quiet"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3):  # 3: the gate was missed, and there is a report
            raise CompressError(f"compress run: {error_line(done.stderr)}")

    def entries(self) -> Iterator[Entry]:
        """Yield what each file of our models scored, and the bag of words."""
        seconds = {step.name: step.seconds or 0.0 for step in self.ours.report.steps}
        reference = self.score_of(TEACHER)
        for row in self.ours.report.rows:
            result = self.ours.report.result(row.key, "cpu")
            if row.status != "ok" or result is None or result.test is None:
                continue
            facts, versus = self.ours.report.cascades.get(row.key), result.test.versus_teacher
            yield Entry(
                set=self.set,
                seed=self.seed,
                contestant=row.key,
                score=result.test.primary.value,
                kept=result.test.primary.value / reference if reference else None,
                loss=-versus.value if versus else None,
                error=(versus.high - versus.low) / (2 * TWO_SIDED) if versus else None,
                share=facts.test_share if facts else None,
                megabytes=row.bytes_total / 1e6 if row.bytes_total else None,
                minutes=sum(seconds[name] for name in row.steps if name.startswith(row.model)) / 60 or None,
            )
        if self.ours.report.floor and not self.seed:
            score = self.ours.report.floor.primary.value
            kept = score / reference if reference else None
            yield Entry(set=self.set, seed=0, contestant="bag of words", score=score, kept=kept)

    def score_of(self, key: str) -> float | None:
        """Return the score of a row on test."""
        result = self.ours.report.result(key, "cpu")
        return result.test.primary.value if result and result.test else None

    def timings(self, budget: float) -> dict[str, tuple[Latency, float | None, float | None]]:
        """Time every file in one session; return by row its latency, and how many times faster than the teacher."""
        rows = {row.key: row for row in self.ours.report.rows if row.status == "ok" and self.is_timed(row)}
        jobs = [Job(key, self.folder_of(row), self.variant_of(row), Placement()) for key, row in rows.items()]
        texts = sample_texts(self.ours.roles.rows("test"), kind_of(self.ours.roles.info.task_info))
        timed = time_jobs(jobs, texts, Measure(budget=budget), budget=budget)
        teacher = timed[TEACHER]
        found: dict[str, tuple[Latency, float | None, float | None]] = {}
        for key, latency in timed.items():
            model, full = ratio(teacher, latency), ratio(teacher, latency, "end_to_end")
            found[key] = (latency, model.value if model else None, full.value if full else None)
        return found

    def is_timed(self, row: LedgerRow) -> bool:
        """Whether a row's file is one that would be used: not one that others are only made from."""
        return row.key == TEACHER or row.variant.format in ("numpy", "cascade") or row.variant.name == "onnx-int8"

    def folder_of(self, row: LedgerRow) -> Path:
        """Return the folder that a row's timings are of."""
        return self.ours.step(row.steps[-1])

    def variant_of(self, row: LedgerRow) -> Any:
        """Return how a model folder runs; None for an exported one."""
        return row.variant if row.variant.format == "torch" else None

    def rows_per_second(self, row: LedgerRow) -> float:
        """Answer the texts of test in bulk on one core."""
        predictor = BulkPredictor(self.folder_of(row))
        kind = kind_of(self.ours.roles.info.task_info)
        given = [kind.to_input(each) for each in self.ours.roles.rows("test")]
        cells = [each if isinstance(each, tuple) else (each,) for each in given]
        origins = [f"row {number}" for number in range(len(cells))]
        predictor.answer(cells[:32], origins[:32])
        begun = time.monotonic()
        predictor.answer(cells, origins)
        return len(cells) / (time.monotonic() - begun)

    def answers(self, key: str) -> NDArray[Any]:
        """Return the predictions on test that a row's step stored."""
        steps = [step for step in self.ours.report.steps if step.name.startswith(f"score-{key.replace('/', '-')}")]
        name = steps[0].name if steps else f"score-{key.partition('/')[0]}"
        with np.load(self.ours.step(name) / ANSWERS_FILE, allow_pickle=False) as stored:
            found: NDArray[Any] = stored["test"]
            return found

    def versus(self, key: str, classes: list[str]) -> Difference:
        """Return the score of a row minus that of another tool's classes, on the same rows."""
        task = self.ours.roles.info.task_info
        kind = kind_of(task)
        theirs = np.eye(len(task.labels), dtype=np.float32)[[task.labels.index(each) for each in classes]]
        gold = kind.gold(self.ours.roles.rows("test"))
        return BootstrapScorer(kind, task).difference(self.answers(key), theirs, gold)


def run_model2vec(case: Case, dimensions: int) -> Entry:
    """Distil the same encoder and train on the same rows."""
    job = {"encoder": str(fetch(ENCODER)), "dimensions": dimensions}
    return _run(case, f"model2vec, {dimensions} dimensions", MODEL2VEC, "model2vec_job.py", job)


def run_fasttext(case: Case) -> Entry:
    """Train a bag of n-grams with fastText's own search of settings."""
    if case.set.endswith(WITH_TEXTS):
        raise CompressError("fastText learns nothing from texts without labels: see the set without them.")
    return _run(case, "fastText", FASTTEXT, "fasttext_job.py", {"minutes": 0.1 if case.trial else 5})


def stored_classes(case: Case, name: str) -> list[str]:
    """Return the classes that another tool gave the texts of test."""
    classes: list[str] = json.loads(_output(case, name).read_text(encoding="utf-8"))["classes"]
    return classes


def _output(case: Case, name: str) -> Path:
    return case.folder / f"{name.replace(', ', '-').replace(' ', '-')}.json"


def _run(case: Case, name: str, environment: Environment, script: str, more: dict[str, Any]) -> Entry:
    task, roles = case.ours.roles.info.task_info, case.ours.roles
    if task.kind != "classification" or roles.rows("train")[0]["text_pair"] is not None:
        raise CompressError(f"{name} classifies single texts only.")
    try:
        environment.install()
    except NotInstalled as error:
        raise CompressError(str(error)) from error
    output = _output(case, name)
    pairs = {
        role: [(row["text"], task.labels[row["label"]]) for row in roles.rows(role)] for role in ("train", "select")
    }
    test = [row["text"] for row in roles.rows("test")]
    timed = [str(text) for text in sample_texts(roles.rows("test"), kind_of(task))][:: 512 // TIMED_TEXTS]
    job = {**pairs, "test": test, "timed": timed, "seed": case.seed, "output": str(output), **more}
    path = output.with_suffix(".job.json")
    path.write_text(json.dumps(job), encoding="utf-8")
    command = [str(environment.python), str(Path(__file__).with_name(script)), str(path)]
    done = subprocess.run(command, cwd=case.folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompressError(f"{name} failed: {error_line(done.stderr)}")
    found = json.loads(output.read_text(encoding="utf-8"))
    right = [
        answer == task.labels[row["label"]] for answer, row in zip(found["classes"], roles.rows("test"), strict=True)
    ]
    score, reference = float(np.mean(right)), case.score_of(TEACHER)
    return Entry(
        set=case.set,
        seed=case.seed,
        contestant=name,
        score=score,
        kept=score / reference if reference else None,
        megabytes=found["bytes"] / 1e6,
        minutes=found["seconds"] / 60,
        end_to_end=found["milliseconds"],
        rows_per_second=found["rows_per_second"],
    )
