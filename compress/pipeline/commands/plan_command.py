"""`compress plan`: the recipe in its long form, the state of each step, and forecasts of time, memory and disk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from compress.console import Console, duration
from compress.environment import describe
from compress.errors import pluralize
from compress.pipeline.execute import Executor
from compress.pipeline.forecast.cost_estimates import PREDICTED_ROLES, Estimates
from compress.pipeline.forecast.time_forecast import Forecast, TrainingSpeed, forecast, measured_memory
from compress.pipeline.forecast.trial_updates import UPDATES, calibrate
from compress.pipeline.graph import Plan, Step
from compress.pipeline.run import Options, check_plan, forced_steps
from compress.pipeline.step_store import StepRecord, StepStore
from compress.pipeline.steps.screen_step import ADMISSION, screened_out
from compress.pipeline.torchrun_launch import Launch
from compress.recipe.load import dump_recipe
from compress.recipe.training_schema import Training
from compress.report import format_numbers as fmt

HOUR = 3600.0


def show_plan(plan: Plan, options: Options, console: Console, *, calibrated: bool = False, here: bool = False) -> None:
    """Print the long form of a recipe and its steps, and refuse what a run would refuse.

    What only this machine lacks is a warning, unless the run is to start ``here`` or to be ``calibrated`` first.
    """
    findings = check_plan(plan, options)
    if here or calibrated:
        findings.refuse()
    rows = preview(plan, options, calibrate(plan, options, console) if calibrated else {})
    for missing in findings.missing:
        console.warn(f"a run cannot start on this machine: {missing}")
    for warning in findings.warnings:
        console.warn(warning)
    if console.format == "json":
        recipe = plan.recipe.model_dump(mode="json")
        console.data({"recipe": recipe, "steps": rows, "rows_in_an_hour": _rows_in_an_hour(plan, options, rows)})
    else:
        if console.format == "human":
            console.line(dump_recipe(plan.recipe))
        console.table([shown_step(row) for row in rows], ["step", "state", "takes", "memory", "disk", "basis"])
    findings.refuse(here=False)
    for title, reason in plan.missing_targets.items():
        console.warn(f"target {title} will not be measured: {reason}")
    if console.format != "json":
        console.note(_total(rows))
        if not calibrated and any(row["seconds"] is None and plan.step(row["step"]).trains for row in rows):
            console.note("--calibrate estimates trainings too: it prepares the data and tries a few updates of each")
        if limit := _rows_in_an_hour(plan, options, rows):
            console.note(f"with about {limit:,} rows of train it would take an hour: --set task.data.limit={limit}")


def _rows_in_an_hour(plan: Plan, options: Options, rows: list[dict[str, Any]]) -> int | None:
    """Return the limit of rows with which the plan would take an hour; None where it takes less, or is not known."""
    estimates = Estimates(plan, StepStore(options.root), options.cards)
    if estimates.counts is None:
        return None
    shares = [partial(share_of_rows, plan.step(row["step"]), estimates=estimates) for row in rows]
    due = [(row["seconds"] or 0.0, share) for row, share in zip(rows, shares, strict=True)]
    return hour_limit(due, estimates.counts["train"])


def _total(rows: list[dict[str, Any]]) -> str:
    """Return the time of all steps that are still to run, as far as it is known."""
    due = [row["seconds"] for row in rows if row["state"] != "done"]
    known = [seconds for seconds in due if seconds is not None]
    if not (unknown := len(due) - len(known)):
        return f"estimate: {duration(sum(known))}; all figures are estimates"
    steps = pluralize(unknown, "step") + (" whose time is" if unknown == 1 else " whose times are")
    first = f"{duration(sum(known))}, and {steps}" if known else steps
    return f"estimate: {first} not known; all figures are estimates"


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


def preview(plan: Plan, options: Options, trials: Mapping[str, TrainingSpeed] | None = None) -> list[dict[str, Any]]:
    """Return one row a step; ``trials`` by step name take precedence over earlier runs."""
    store = StepStore(options.root)
    executor = Executor(plan, store, Console("quiet"), Path("unused"), Launch())
    machine = describe(options.root).fingerprint
    estimates = Estimates(plan, store, options.cards)
    records = [estimates.scaled(record) for record in store.records() if record.machine == machine]
    forced = forced_steps(plan, options)
    skipped: set[str] = set()

    def row_of(step: Step) -> dict[str, Any]:
        record = None if step.name in forced else executor.cached(step)
        nothing: dict[str, Any] = {"step": step.name, "seconds": 0.0, "memory": None, "disk": None}
        if record:
            executor.outcome.records[step.name] = record
            return nothing | {"state": "done", "basis": f"took {record.seconds:.1f} s"}
        if reason := _reason_to_skip(step, skipped, store, executor.outcome.records):
            skipped.add(step.name)
            return nothing | {"state": "skipped", "basis": reason}
        model = plan.model_of(step.name)
        expected = estimates.training(model) if model else None
        trial = (trials or {}).get(step.name)
        if trial and expected:
            estimate = Forecast(trial.seconds(expected), f"{UPDATES} updates tried just now")
        elif records and model and model.training and not expected:
            estimate = Forecast(None, "the rows or the model are not known yet")
        else:
            estimate = forecast(step, records, expected)
        trainings = estimates.describe_trainings(model) if model else None
        started = (store.steps / ".partial" / f"{step.name}-{step.fingerprint}").is_dir()
        return {
            "step": step.name,
            "state": "started" if started else "to do",
            "seconds": _within_limit(estimate.seconds, model.training if model else None),
            "memory": measured_memory(step, records) or (expected.memory if expected else None),
            "disk": expected.disk if expected else None,
            "basis": f"{estimate.basis}; {trainings}" if trainings else estimate.basis,
        }

    return [row_of(step) for step in plan.steps]


def _reason_to_skip(
    step: Step, skipped: Collection[str], store: StepStore, records: Mapping[str, StepRecord]
) -> str | None:
    """Return why a run will skip a step: an earlier run screened its file out, or it needs a step that is skipped."""
    if step.kind == ADMISSION and (screening := records.get(step.needs[-1])):
        return screened_out(store.folder_of(screening), step.settings["variant"])
    absent = None if step.tolerant else next((need for need in step.needs if need in skipped), None)
    return f"needs {absent}, which is skipped" if absent else None


def _within_limit(seconds: float | None, settings: Training | None) -> float | None:
    """Return the time of a step whose training may have a limit of time."""
    if seconds is None or settings is None or settings.minutes is None:
        return seconds
    return min(seconds, 60 * settings.minutes * settings.trial_count)


def shown_step(row: dict[str, Any]) -> dict[str, Any]:
    """Format a row for people."""
    return {
        **row,
        "takes": duration(row["seconds"]) if row["seconds"] is not None else "unknown",
        "memory": "" if row["memory"] is None else fmt.size(row["memory"]),
        "disk": "" if row["disk"] is None else fmt.size(row["disk"]),
    }
