"""`compress plan --calibrate`: the model steps in miniature, on rows of the real data, so that their pace is known.

The rows are read as they would be in a run, and then stand. Everything else happens in a folder that is removed: each
training makes a few updates in each of two epochs, so that what a teacher's kept words save is seen too; in phases, two
epochs of each.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from compress.console import Console, duration
from compress.data.splits.corpus import documents_of
from compress.data.splits.prepare_splits import DATA_FILE, Roles, load_prepared
from compress.data.splits.row_store import RowWriter
from compress.data.splits.unlabelled_texts import UNLABELLED
from compress.errors import pluralize
from compress.pipeline.execute import Executor
from compress.pipeline.forecast.cost_estimates import Expected, training_of
from compress.pipeline.forecast.throughput_history import Rates
from compress.pipeline.forecast.time_forecast import Forecast
from compress.pipeline.graph import Plan, Run, Step, StepResult
from compress.pipeline.run import Options
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import StepStore
from compress.pipeline.torchrun_launch import Launch
from compress.recipe.field_types import Role
from compress.recipe.schema import Recipe
from compress.recipe.training_schema import Distill, Training
from compress.tasks import kind_of

UPDATES = 12
"""Updates of each of the two epochs that are tried."""
SELECT = 64
"""Rows of select that an evaluation is tried on."""
SCORED, SCORING = 4, 32
"""Batches that pruning is tried with, and rows in each."""


@dataclass(frozen=True)
class Calibrated:
    """One step as it was tried."""

    rates: Rates
    beside: float
    """Seconds that the step took beside its training: loading, encoding, building."""

    batches: int = 0
    """Batches beside the training that were not tried: those by which pruning scores heads and neurons."""

    def forecast(self, expected: Expected) -> Forecast:
        """What the whole step will take."""
        work = expected.work
        rows = sum(work.updates) / work.per_epoch * len(work.lengths)
        scoring = self.batches * SCORING / rows * self.rates.operation * work.flops(work.first + work.later)
        seconds = expected.seconds(self.rates) + self.beside + scoring + expected.encoding
        of_each = " of each phase" if self.rates.phases else ""
        return Forecast(seconds, f"{2 * UPDATES} updates{of_each} tried just now")


def calibrate(plan: Plan, options: Options, console: Console) -> dict[str, Calibrated]:
    """Try every training of ``plan`` that is still to run; by kind of step."""
    import compress.train  # noqa: F401  # so that what importing takes once is no part of any step

    store = StepStore(options.root)
    executor = Executor(plan, store, console, options.root / "calibrated.jsonl", Launch())
    read = [step.name for step in plan.steps if step.kind in ("data", UNLABELLED)]
    executor.run(set(), until=read[-1])
    folders = {"data": store.folder("data", plan.step("data").fingerprint)}
    found: dict[str, Calibrated] = {}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="compress-") as room:
        for step in (step for step in plan.steps if step.trains):
            if record := executor.cached(step):
                folders[step.name] = store.folder(step.name, step.fingerprint)
                executor.outcome.records[step.name] = record
                continue
            console.note(f"{step.name}: a few updates, to see how long they take")
            folders[step.name] = Path(room) / step.name
            tried = _try(step, plan, folders, Path(room))
            if tried:
                found[step.kind] = tried
    console.note(f"tried {pluralize(len(found), 'training')} in {duration(time.perf_counter() - began)}")
    return found


def _try(step: Step, plan: Plan, folders: dict[str, Path], room: Path) -> Calibrated | None:
    """Run one model step in miniature; its folder is what later ones start from."""
    settings = training_of(plan, step.kind)
    recipe = _shortened(plan.recipe)
    data = room / f"{step.name}-data"
    _write_rows(load_prepared(folders["data"]), settings, data)
    folders[step.name].mkdir()
    inputs = {need: folders[need] for need in step.needs if need != UNLABELLED} | {"data": data}
    context = StepContext(inputs=inputs, work=folders[step.name], console=Console("quiet"))
    began = time.perf_counter()
    done = _short(step, recipe)(context)
    took = time.perf_counter() - began
    if not isinstance(done, StepResult) or done.rates is None:
        return None
    untried = 0
    if step.kind == "prune" and plan.recipe.prune:
        there = load_prepared(folders["data"]).info.counts["train"] // SCORING
        untried = max(0, min(plan.recipe.prune.batches, there) - SCORED)
    rates = Rates.model_validate(done.rates)
    return Calibrated(rates, max(0.0, took - rates.trained), untried)


def _short(step: Step, recipe: Recipe) -> Run:
    """The step's function with the shortened settings."""
    run: Any = step.run
    given = {"finetune": recipe.finetune, "distill": recipe.distill, "prune": recipe.prune}[step.kind]
    return partial(run, settings=given)


def _shortened(recipe: Recipe) -> Recipe:
    """Every training twice through the rows it is given, once, from one seed."""
    short: dict[str, Any] = {"epochs": 2.0, "max_steps": None, "restarts": 1, "patience": None, "evaluations": 1}

    def cut(settings: Any) -> Any:
        return settings and _phases_alike(settings.model_copy(update=short))

    prune = recipe.prune and recipe.prune.model_copy(
        update={"recover": cut(recipe.prune.recover), "batches": min(SCORED, recipe.prune.batches)}
    )
    changes = {"finetune": cut(recipe.finetune), "distill": cut(recipe.distill), "prune": prune}
    return recipe.model_copy(update=changes)


def _phases_alike(settings: Training) -> Training:
    """Every phase gets the epochs that a training without phases would."""
    if not (isinstance(settings, Distill) and settings.phases):
        return settings
    count = len(settings.phases)
    phases = tuple(phase.model_copy(update={"share": 1 / count}) for phase in settings.phases)
    return settings.model_copy(update={"epochs": settings.epochs * count, "phases": phases})


def _write_rows(roles: Roles, settings: Training | None, folder: Path) -> None:
    """A data folder with as many rows as the miniature needs, drawn evenly so that their lengths are those of all."""
    folder.mkdir()
    wanted = UPDATES * settings.batch_size * settings.accumulate if settings else SELECT
    limits: dict[Role, int] = {"train": wanted, "select": SELECT, "test": 1}
    for role, limit in limits.items():
        _copy(roles.rows(role), folder, role, limit)
        if kind_of(roles.info.task_info).searches and role != "train":
            _copy(roles.documents(role), folder, documents_of(role), len(roles.documents(role)))
    counts = {role: min(limit, len(roles.rows(role))) for role, limit in limits.items()}
    info = roles.info.model_copy(update={"counts": counts})
    (folder / DATA_FILE).write_text(info.model_dump_json(), encoding="utf-8")


def _copy(rows: Any, folder: Path, name: str, limit: int) -> None:
    with RowWriter(folder, name) as writer:
        for place in _even(len(rows), limit):
            writer.add(rows[place])


def _even(count: int, limit: int) -> Iterator[int]:
    """Places at even steps; all where there are no more."""
    yield from (int(place) for place in np.unique(np.linspace(0, count - 1, min(count, limit)).astype(int)))
