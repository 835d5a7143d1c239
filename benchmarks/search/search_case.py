"""One set with one seed: a teacher, and what each way of searching makes of it in a folder of its own."""

import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.defaults.real_sets import SETS
from benchmarks.finished_run import FinishedRun, SetCase
from benchmarks.search.search_results import Budget, Made, Point
from compress.environment import describe_cpu, require
from compress.errors import CompressError
from compress.measure import Job, time_jobs
from compress.measure.quality.bootstrap_scorer import BootstrapScorer
from compress.measure.timing.latency import ratio
from compress.measure.timing.worker_process import error_line
from compress.model_folder.model_info import VariantInfo
from compress.pipeline.step_store import StepRecord, StepStore
from compress.pipeline.steps.measure_step import sample_texts
from compress.recipe.measure_schema import Measure
from compress.report.report_schema import LedgerRow
from compress.runtime.predictor import Placement
from compress.search.candidates import COMPARING
from compress.steps import KINDS
from compress.steps.shared_step import SECTION
from compress.storage.file_names import ANSWERS_FILE
from compress.tasks import kind_of

ENCODER, TEACHER = "minilm-l6", "teacher/torch-fp32"
BUDGETS = ("speedup=20,drop=0.02", "speedup=60,smaller=20,drop=0.03", "speedup=40,smaller=25,drop=0.01")
GRID = tuple(
    {"layers": layers, "heads": heads, "ffn": ffn} for layers in (1, 2, 3, 4) for heads, ffn in ((6, 768), (3, 384))
)
"""Eight students: half and a quarter of the teacher's heads and neurons, in one to four of its six layers."""
SPEEDUPS = (2, 4)
"""Goals of the starter recipe, which prunes its teacher."""
QUANTIZE = {"methods": ["dynamic", "rows-8bit"]}
MEASURE = {"rounds": 12, "processes": 3, "seconds": 0.1, "memory": []}
PART, PART_VARIANT, SIGNIFICANT = "part-", "onnx-int8", 0.05
TRIAL_TRAINING = {"epochs": 1, "batch_size": 16}
WAYS = ("search", "grid", "optuna", "init")
TITLES: Mapping[str, str] = {
    "search": "compress search",
    "grid": "eight students, one by one",
    "optuna": "Optuna's TPE, one student after another",
    "init": "the starter recipe, pruned to 2 and 4 times",
}


class Case(SetCase):
    """The ways of searching on one set with one seed."""

    @cached_property
    def _counted(self) -> defaultdict[str, set[str]]:
        """By way, the fingerprints of trainings whose minutes are counted."""
        return defaultdict(set)

    @cached_property
    def teacher(self) -> Path:
        """The fine-tuned teacher of all ways."""
        training = {"finetune": TRIAL_TRAINING} if self.trial else {}
        self._compress("teacher", "run", self._recipe("teacher", ENCODER) | training, "--until", "finetune")
        (folder,) = (self.folder / "teacher" / "runs" / ".steps").glob("finetune-*")
        return folder

    def search(self) -> Iterator[tuple[list[Made], Budget]]:
        """Search within each budget, one after the other; the second finds what the first one trained."""
        for number, asked in enumerate(BUDGETS):
            recipe = self._tuned("my") | ({"shared": {"epochs": 1}} if self.trial else {})
            finalists = ("--finalists", "2") if self.trial else ()
            self._compress("search", "search", recipe, "--budget", asked, *finalists)
            run = FinishedRun(self.folder / "search", "my-search")
            yield list(self._stages(100 * number, asked, run)), self._budget(run, asked)

    def grid(self) -> Iterator[Made]:
        """Train each student of the grid."""
        for number, shape in enumerate(GRID[:2] if self.trial else GRID):
            yield self._student("grid", number, shape)

    def optuna(self, minutes: float) -> Iterator[Made]:
        """Train what Optuna's sampler asks for, until the minutes are used up."""
        optuna, used = require("optuna", "search"), 0.0
        ranges = {"layers": (1, 6, 1), "heads": (1, 12, 1), "ffn": (64, 1536, 64)}
        space = {
            name: optuna.distributions.IntDistribution(*bounds[:2], step=bounds[2]) for name, bounds in ranges.items()
        }
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=self.seed)
        study = optuna.create_study(directions=["maximize", "maximize"], sampler=sampler)
        while used < minutes and len(study.trials) < (2 if self.trial else 100):
            trial = study.ask(space)  # the same as before where a killed benchmark goes on: students are found done
            made = self._student("optuna", trial.number, trial.params)
            speed, score = max(made.points, default=(1.0, 0.0), key=lambda each: each[0])
            study.tell(trial, (math.log(speed), score))
            used += made.minutes
            yield made

    def init(self) -> Iterator[Made]:
        """Run the starter recipe, which prunes its teacher to a speed-up."""
        for number, speedup in enumerate(SPEEDUPS[:1] if self.trial else SPEEDUPS):
            recipe = self._tuned(f"to-{speedup}") | {"prune": {"to": {"speedup": speedup}}}
            self._compress("init", "run", recipe)
            run = FinishedRun(self.folder / "init", f"to-{speedup}")
            yield self._made("init", number, f"{speedup} times", self._trainings("init", run), self._points(run))

    def floor(self) -> float:
        """Return the bag of words' share of the teacher's score."""
        report = FinishedRun(self.folder / "search", "my-search").report
        teacher = report.result(TEACHER, "cpu")
        if report.floor is None or teacher is None or teacher.test is None:
            return 0.0
        return report.floor.primary.value / teacher.test.primary.value

    def _student(self, way: str, number: int, shape: Mapping[str, int]) -> Made:
        """Train one student of a shape by itself."""
        title = "x".join(str(size) for size in shape.values())
        self._compress(way, "run", self._tuned(title) | {"student": dict(shape)})
        run = FinishedRun(self.folder / way, title)
        return self._made(way, number, title, self._trainings(way, run), self._points(run))

    def _stages(self, number: int, asked: str, run: FinishedRun) -> Iterator[Made]:
        """Yield each model that a search trained, in order: what all parts need comes before the first.

        The last one has cascades too, which need no training.
        """
        trainings, models = list[StepRecord](), ["teacher"]
        trained = {row.model for row in run.report.rows} - {"teacher"}
        for record in self._trainings("search", run):
            trainings.append(record)
            if record.step in trained:
                models.append(record.step)  # a model has the name of the step that trains it
                points = self._points(run, models)
                yield self._made("search", number, f"{asked}: {record.step}", trainings, points)
                number, trainings = number + 1, []
        yield self._made("search", number, f"{asked}: all files", trainings, self._points(run))

    def _recipe(self, name: str, teacher: str) -> dict[str, Any]:
        section = SETS[self.set].section(self.work)
        section["data"]["limit"] = self.rows
        recipe = {"name": name, "seed": self.seed, "task": section, "teacher": teacher, "student": None}
        return recipe | {"quantize": QUANTIZE, "measure": MEASURE, "gate": {"max_drop": 0.02}}

    def _tuned(self, name: str) -> dict[str, Any]:
        """Return a recipe whose teacher is the fine-tuned one."""
        distill = {"distill": TRIAL_TRAINING} if self.trial else {}
        return self._recipe(name, str(self.teacher)) | {"finetune": False} | distill

    def _compress(self, way: str, command: str, recipe: Mapping[str, Any], *options: str) -> None:
        """Run a command of compress in a way's folder; a killed one goes on, a finished one does nothing."""
        folder = self.folder / way
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{recipe['name']}.yaml"
        path.write_text(yaml.safe_dump(dict(recipe), sort_keys=False), encoding="utf-8")
        words = [sys.executable, "-m", "compress", command, path.name, *options, "--format", "quiet"]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3):  # 3: nothing passed the gate within the budget, and there is a report
            raise CompressError(f"compress {command}: {error_line(done.stderr)}")

    def _trainings(self, way: str, run: FinishedRun) -> list[StepRecord]:
        """Return the trainings of a run that no earlier one of its way had, and comparing parts, in their order."""
        of_run = {each.fingerprint for each in run.report.steps}
        made = [each for each in StepStore(self.folder / way / "runs").records() if each.kind in (*KINDS, COMPARING)]
        new = [
            each
            for each in made
            if each.fingerprint not in self._counted[way]
            and (each.inputs[SECTION] if each.kind == COMPARING else each).fingerprint in of_run
        ]
        self._counted[way] |= {each.fingerprint for each in new}
        return sorted(new, key=lambda each: each.created)

    def _made(
        self, way: str, number: int, title: str, trainings: Sequence[StepRecord], points: Iterator[Point]
    ) -> Made:
        facts = {"set": self.set, "seed": self.seed, "way": way, "number": number, "title": title}
        minutes = sum(each.seconds for each in trainings) / 60
        return Made(**facts, processor=describe_cpu().model, minutes=minutes, points=tuple(points))

    def _points(self, run: FinishedRun, models: Sequence[str] | None = None) -> Iterator[Point]:
        """Yield the speed and score of every file of a run, the teacher's INT8 ones too, or of some models."""
        teacher = run.report.result(TEACHER, "cpu")
        for row in run.report.rows:
            if models is not None and row.model not in models:
                continue
            result = run.report.result(row.key, "cpu")
            if teacher is None or teacher.test is None or result is None or result.test is None:
                continue
            if (faster := ratio(teacher.latency, result.latency)) is not None:
                yield faster.value, result.test.primary.value / teacher.test.primary.value

    def _budget(self, run: FinishedRun, asked: str) -> Budget:
        """Time a budget's winner beside the teacher again."""
        winner, (parts, worse) = run.report.verdicts[0].winner, worse_parts(run, self.seed)
        limits = dict(each.split("=") for each in asked.split(","))
        facts = {"set": self.set, "seed": self.seed, "asked": asked, "winner": winner, "speedup": limits["speedup"]}
        facts |= {"parts": parts, "worse": worse}
        if winner is None:
            return Budget(**facts)
        rows = [each for each in run.report.rows if each.key in (TEACHER, winner)]
        jobs = [Job(each.key, run.step(each.steps[-1]), _variant(each), Placement("cpu", 1)) for each in rows]
        texts = sample_texts(run.roles.rows("test"), kind_of(run.roles.info.task_info))
        timed = time_jobs(jobs, texts, Measure(memory=()), seed=self.seed + 1)
        again = ratio(timed[TEACHER], timed[winner])
        return Budget(**facts, measured=again.value if again else None)


def worse_parts(run: FinishedRun, seed: int) -> tuple[int, int]:
    """Return how many parts a search trained on, and how many of them are worse on select than a faster one."""
    task, teacher = run.roles.info.task_info, run.report.result(TEACHER, "cpu")
    kind, answers = kind_of(task), dict[float, Any]()
    gold, scorer = kind.gold(run.roles.rows("select")), BootstrapScorer(kind, task, 1000, seed)
    for row in run.report.rows:
        result = run.report.result(row.key, "cpu")
        if not row.key.startswith(PART) or row.variant.name != PART_VARIANT or teacher is None or result is None:
            continue
        faster = ratio(teacher.latency, result.latency)
        scored = next(
            step.name for step in run.report.steps if step.name.startswith(f"score-{row.model}-{PART_VARIANT}")
        )
        with np.load(run.step(scored) / ANSWERS_FILE) as stored:
            answers[faster.value if faster else 0.0] = stored["select"]
    worse = 0
    for speed, ours in answers.items():
        others = (scorer.difference(ours, theirs, gold) for faster, theirs in answers.items() if faster > speed)
        worse += any(each.value < 0 and each.p_value < SIGNIFICANT for each in others)
    return len(answers), worse


def _variant(row: LedgerRow) -> VariantInfo | None:
    """Return how a model folder runs; None for an exported one."""
    return row.variant if row.variant.format == "torch" else None
