"""`compress plan --calibrate`: a few updates of every training on the real data, to measure their throughput.

The data are prepared as in a run, and stay cached. Everything else happens in a temporary folder.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from compress.console import Console, duration
from compress.data.splits.prepare_splits import DATA_FILE, PreparedData, load_prepared
from compress.data.splits.row_store import RowWriter, documents_name
from compress.data.splits.unlabelled_texts import UNLABELLED
from compress.errors import pluralize
from compress.pipeline.execute import Executor
from compress.pipeline.forecast.cost_estimates import Estimates
from compress.pipeline.forecast.time_forecast import UPDATES, TrainingSpeed
from compress.pipeline.graph import Plan, Step
from compress.pipeline.plan import make_plan
from compress.pipeline.run import Options
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import StepStore
from compress.pipeline.torchrun_launch import Launch
from compress.recipe.field_types import Role
from compress.recipe.training_schema import Training, number
from compress.steps import STEPS, map_trainings
from compress.tasks import kind_of
from compress.tasks.base import evenly_spaced

SELECT_ROWS = 64


def calibrate(plan: Plan, options: Options, console: Console) -> dict[str, TrainingSpeed]:
    """Try every training of ``plan`` that is not cached; returns their speeds by step name."""
    import compress.train.distill  # noqa: F401  # so that the time of imports is not measured
    from compress.train.precision import always_tried

    store = StepStore(options.root)
    executor = Executor(plan, store, console, options.root / "calibrated.jsonl", Launch())
    executor.run(set(), until=UNLABELLED if any(step.kind == UNLABELLED for step in plan.steps) else "data")
    estimates = Estimates(plan, store, options.cards)
    known = {model.training: estimates.settings(model) for model in plan.models if model.training}
    sizes = {training: number(settings.batch_size) for training, settings in known.items() if settings}

    def shortened(training: Training) -> Training:  # also one that others follow from, with a size of their own
        return _shorten(training, sizes.get(training, training.batch_size))

    recipe = map_trainings(plan.recipe, shortened)
    for model_step in STEPS.values():
        recipe = model_step.untimed(recipe)
    short = make_plan(recipe, options.cards)
    batches = [size * training.accumulate for training, size in sizes.items()]
    speeds: dict[str, TrainingSpeed] = {}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="compress-") as scratch, always_tried():
        folders = {"data": Path(scratch) / "data"}
        data = load_prepared(store.folder("data", plan.step("data").fingerprint))
        _write_sample(data, UPDATES * max(batches, default=1), folders["data"])
        for model in plan.models:
            step = plan.step(model.step)
            if record := executor.cached(step):
                folders[step.name] = store.folder(step.name, step.fingerprint)
                executor.outcome.records[step.name] = record
                continue
            console.note(f"{step.name}: a few updates, to measure how long they take")
            folders[step.name] = Path(scratch) / step.name
            if speed := _try(short.step(step.name), folders):
                speeds[step.name] = speed
    console.note(f"tried {pluralize(len(speeds), 'training')} in {duration(time.perf_counter() - began)}")
    return speeds


def _try(step: Step, folders: dict[str, Path]) -> TrainingSpeed | None:
    """Run a shortened model step; later ones start from its folder."""
    folders[step.name].mkdir()
    inputs = {need: folders[need] for need in step.needs if need != UNLABELLED}
    began = time.perf_counter()
    rates = step.run(StepContext(inputs=inputs, work=folders[step.name], console=Console("quiet")))
    return TrainingSpeed.of(rates, time.perf_counter() - began)


def _shorten(settings: Training, batch_size: Any) -> Training:
    short: dict[str, Any] = {"epochs": 1.0, "max_steps": UPDATES, "batch_size": batch_size}
    short |= {"patience": None, "evaluations": 1, "minutes": None}
    return settings.single().model_copy(update=short)


def _write_sample(roles: PreparedData, train_rows: int, folder: Path) -> None:
    """Write a data folder with rows at even steps, so that their lengths are representative, and all documents."""
    folder.mkdir()
    limits: dict[Role, int] = {"train": train_rows, "select": SELECT_ROWS, "test": 1}
    counts = {role: _copy(roles.rows(role), folder, role, limit) for role, limit in limits.items()}
    if kind_of(roles.info.task_info).searches:
        for role in ("select", "test"):
            _copy(roles.documents(role), folder, documents_name(role), len(roles.documents(role)))
    info = roles.info.model_copy(update={"counts": counts})
    (folder / DATA_FILE).write_text(info.model_dump_json(), encoding="utf-8")


def _copy(rows: Any, folder: Path, name: str, limit: int) -> int:
    """Copy up to ``limit`` rows; returns how many."""
    sample = evenly_spaced(rows, limit)
    with RowWriter(folder, name) as writer:
        for row in sample:
            writer.add(row)
    return len(sample)
