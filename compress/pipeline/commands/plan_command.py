"""`compress plan`: the recipe in its long form, the state of each step, and forecasts of time, memory and disk.

Of a pretraining recipe: the long form, the state of its steps, texts and device.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from compress import format_numbers as fmt
from compress.console import Console, duration
from compress.data.loading.data_digest import STEP_PARTS, part_files
from compress.data.splits.prepare_splits import prepare_splits
from compress.environment import describe_cpu, describe_cpu_state
from compress.errors import pluralize
from compress.pipeline.commands.pretrain_run import (
    PretrainOptions,
    PretrainPlan,
    make_pretrain_plan,
    read_pretrain_recipe,
)
from compress.pipeline.execute import Executor
from compress.pipeline.forecast.cost_estimates import PREDICTED_ROLES, Estimates
from compress.pipeline.forecast.step_forecasts import StepForecasts, StepRow, format_span, is_rough, span_of
from compress.pipeline.forecast.time_forecast import TrainingSpeed
from compress.pipeline.forecast.trial_updates import calibrate
from compress.pipeline.graph import Plan, Step
from compress.pipeline.run import Options, check_plan, forced_steps
from compress.pipeline.stages import stages_of
from compress.pipeline.step_store import StepStore
from compress.pipeline.torchrun_launch import Launch
from compress.pretrain.pretrain_schema import PretrainRecipe, Text
from compress.recipe.load import dump_recipe

HOUR = 3600.0
READ_AT_ONCE, UNPACKED = 64 * 2**20, 8
"""Bytes of files whose rows a plan reads and checks, packed ones counted so many times; larger ones are left to the
run."""


def show_plan(
    plan: Plan,
    options: Options,
    console: Console,
    *,
    calibrated: bool = False,
    here: bool = False,
    whole: bool = False,
) -> None:
    """Print the stages of a recipe with their times, and refuse what a run would refuse.

    The ``whole`` plan is the recipe's long form and every step.

    What only this machine lacks is a warning, unless the run is to start ``here`` or to be ``calibrated`` first.
    """
    findings = check_plan(plan, options)
    if here or calibrated:
        findings.refuse()
    if not calibrated and not findings.errors:
        _check_rows(plan, options, console)
    trials = calibrate(plan, options, console) if calibrated else {}
    forecasts = _forecasts(plan, options)
    wanted = {step.name for step in plan.until(options.until)}
    rows = [row for row in forecasts.rows(trials) if row["step"] in wanted]
    for missing in findings.missing:
        console.warn(f"a run cannot start on this machine: {missing}")
    for warning in findings.warnings:
        console.warn(warning)
    _show_steps(plan, rows, console, whole=whole, rows_in_an_hour=partial(_rows_in_an_hour, plan, options, rows))
    findings.refuse(here=False)
    for title, reason in plan.missing_targets.items():
        console.warn(f"target {title} will not be measured: {reason}")
    if console.format == "json":
        return
    console.note(_total(rows, forecasts))
    if not here and not calibrated and any(is_rough(row) and plan.step(row["step"]).trains for row in rows):
        console.note("--calibrate estimates trainings better: it prepares the data and tries a few updates of each")
    if limit := _rows_in_an_hour(plan, options, rows):
        console.note(f"with about {limit:,} rows of train it would take an hour: --set task.data.limit={limit}")
    if not here and not whole:
        console.note("--all prints every default of the recipe, and each step with its memory, disk and basis")


def _check_rows(plan: Plan, options: Options, console: Console) -> None:
    """Refuse the rows that a run would refuse, and print its warnings of them; larger files are left to the run."""
    data, step = plan.recipe.task.data, plan.step("data")
    files = [path for part in STEP_PARTS for path in part_files(data, part)] if data.train else []
    if not files or StepStore(options.root).record(step.name, step.fingerprint):
        return
    if sum(path.stat().st_size * (UNPACKED if path.suffix == ".gz" else 1) for path in files) > READ_AT_ONCE:
        console.note("the run checks the rows: there are too many to be read for a plan")
        return
    with tempfile.TemporaryDirectory() as work:
        prepare_splits(plan.recipe.task, data.split_seed, Path(work), console)


def _show_steps(
    plan: Plan, rows: list[StepRow], console: Console, *, whole: bool, rows_in_an_hour: Callable[[], int | None]
) -> None:
    """Print the stages, or the long form of the recipe and every step; in json everything in one document."""
    if console.format == "json":
        recipe = plan.recipe.model_dump(mode="json")
        console.data({"recipe": recipe, "steps": rows, "rows_in_an_hour": rows_in_an_hour()})
    elif console.format == "human" and not whole:
        console.table(stage_rows(plan, rows), title=f"{plan.recipe.name}: what a run does")
    else:
        if console.format == "human":
            console.line(dump_recipe(plan.recipe))
        console.table([shown_step(row) for row in rows], ["step", "state", "takes", "memory", "disk", "basis"])


def _rows_in_an_hour(plan: Plan, options: Options, rows: list[dict[str, Any]]) -> int | None:
    """Return the limit of rows with which the plan would take an hour; None where it takes less, or is not known."""
    estimates = Estimates(plan, StepStore(options.root), options.cards)
    if estimates.counts is None:
        return None
    shares = [partial(share_of_rows, plan.step(row["step"]), estimates=estimates) for row in rows]
    due = [(row["seconds"] or 0.0, share) for row, share in zip(rows, shares, strict=True)]
    return hour_limit(due, estimates.counts["train"])


def _total(rows: Sequence[StepRow], forecasts: StepForecasts) -> str:
    """Return the time of all steps that are still to run, and what it is estimated from."""
    due = [row for row in rows if row["state"] not in ("done", "skipped")]
    if not due:
        return "everything is done"
    sources = ["earlier runs"] if any(not is_rough(row) for row in due) else []
    if any(is_rough(row) for row in due):
        sources.append(f"a short measurement of this machine and {forecasts.described_rows}")
    text = f"estimate: about {span_of(due)}, from {' and '.join(sources)}"
    if any(row["at_most"] for row in due):
        longest = sum(row["at_most"] or row["most"] for row in due)
        text += f"; at most {format_span(longest, longest)} if trainings use all their epochs"
    return text + _busy(due)


def _busy(due: Sequence[StepRow]) -> str:
    """Say that measured estimates are too long where other work takes half of this machine or more."""
    load, cores = describe_cpu_state().load, describe_cpu().cores_of_machine
    if load is None or load < cores / 2 or not any(map(is_rough, due)):
        return ""
    return f"; less when no other work keeps this machine busy (load {load:.1f} on {pluralize(cores, 'core')})"


def share_of_rows(step: Step, limit: int, estimates: Estimates) -> float:
    """Return the share of a step's time that is left with at most ``limit`` rows of each role.

    Fewer rows are trained for more epochs; the time of steps such as a cut does not depend on the rows.
    """
    counts = estimates.counts or {}
    model = estimates.plan.model_of(step.name) if step.trains else None
    if model is not None:
        now, then = estimates.trained_rows(model), estimates.trained_rows(model, limit)
        return then / now if now and then else 1.0
    roles = PREDICTED_ROLES.get(step.kind, ())
    return sum(min(counts[role], limit) for role in roles) / sum(counts[role] for role in roles) if roles else 1.0


def hour_limit(due: Sequence[tuple[float, Callable[[int], float]]], rows: int) -> int | None:
    """Return the largest number of rows, with two digits, that keeps a plan to an hour; None if all or no number does.

    Args:
        due: the expected time of each step, 0 where it is done or unknown, and the share of it for a limit of rows.
        rows: the rows of train.
    """
    if sum(seconds for seconds, _ in due) <= HOUR:
        return None
    digits = range(10, 100)
    limits = (number * 10**power for power in reversed(range(len(str(rows)))) for number in reversed(digits))
    fitting = (limit for limit in limits if limit < rows and sum(time * share(limit) for time, share in due) <= HOUR)
    return next(fitting, None)


def preview(plan: Plan, options: Options, trials: Mapping[str, TrainingSpeed] | None = None) -> list[StepRow]:
    """Return one row a step; ``trials`` by step name take precedence over earlier runs."""
    return _forecasts(plan, options).rows(trials)


def _forecasts(plan: Plan, options: Options) -> StepForecasts:
    return StepForecasts(plan, StepStore(options.root), options.cards, forced_steps(plan, options))


def stage_rows(plan: Plan, rows: Sequence[StepRow]) -> list[dict[str, Any]]:
    """Return a row a stage: what it does, how much of it is done, and about how long the rest takes."""
    by_step = {row["step"]: row for row in rows}
    shown = []
    for stage, steps in stages_of([step for step in plan.steps if step.name in by_step]):
        own = [by_step[step.name] for step in steps]
        due = [row for row in own if row["state"] not in ("done", "skipped")]
        started = any(row["state"] == "started" for row in due)
        state = "done" if not due else "started" if started else "to do"
        if 0 < len(due) < len(own):
            state += f", {len(own) - len(due)} of {len(own)} steps done"
        takes = f"about {span_of(due)}" if due else ""
        shown.append({"stage": stage.title, "state": state, "takes": takes})
    return shown


def shown_step(row: dict[str, Any]) -> dict[str, Any]:
    """Format a row for people."""
    return {
        **row,
        "takes": duration(row["seconds"]) if not is_rough(row) else f"about {span_of([row])}",
        "memory": "" if row["memory"] is None else fmt.size(row["memory"]),
        "disk": "" if row["disk"] is None else fmt.size(row["disk"]),
    }


def show_pretrain_plan(source: Path, overrides: list[str], options: PretrainOptions, console: Console) -> None:
    """Print what `compress pretrain` would do; nothing runs."""
    plan = make_pretrain_plan(read_pretrain_recipe(source, overrides), options.cards)
    rows = list(_rows(plan, options.runs))
    if console.format == "json":
        console.data({"recipe": plan.recipe.model_dump(mode="json"), "steps": rows})
        return
    if console.format == "human":
        console.line(dump_recipe(plan.recipe))
    console.table(rows, ["step", "state", "takes"])
    console.note(f"texts: {_texts(plan.recipe.text)}")
    console.note(f"training: {_training(plan.recipe)}")
    console.note(f"device: a CUDA device where torch has one, else {describe_cpu().model}")
    console.note(f"next: compress pretrain {source}")


def _rows(plan: PretrainPlan, runs: Path) -> Iterator[dict[str, Any]]:
    store = StepStore(runs)
    executor = Executor(plan, store, Console("quiet"), Path("unused"), Launch())
    for step in plan.steps:
        if record := executor.cached(step):
            executor.outcome.records[step.name] = record
            yield {"step": step.name, "state": "done", "takes": f"took {duration(record.seconds)}"}
        else:
            started = (store.steps / ".partial" / f"{step.name}-{step.fingerprint}").is_dir()
            yield {"step": step.name, "state": "started" if started else "to do", "takes": "unknown before it ran"}


def _texts(text: Text) -> str:
    if text.hub:
        return f"split {text.split} of {text.hub}"
    return ", ".join(f"{file} ({fmt.size(Path(file).stat().st_size)})" for file in text.files or ())


def _training(recipe: PretrainRecipe) -> str:
    """Return the size of the training; its time is known from its first steps on."""
    train = recipe.train
    limit = f", or about {train.minutes:g} minutes" if train.minutes else ""
    rows = train.batch_size * train.accumulate
    return f"{train.steps:,} steps of {rows:,} sequences of up to {train.length} pieces{limit}"
