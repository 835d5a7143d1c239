"""`compress plan`: the recipe in its long form, the state of each step, and forecasts of time, memory and disk."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compress.console import Console, duration
from compress.environment import describe
from compress.pipeline.execute import Executor
from compress.pipeline.forecast.cost_estimates import PREDICTED_ROLES, Estimates
from compress.pipeline.forecast.time_forecast import Forecast, TrainingSpeed, forecast, measured_memory
from compress.pipeline.forecast.trial_updates import UPDATES, calibrate
from compress.pipeline.graph import Plan, Step
from compress.pipeline.run import Options, check_plan, forced_steps
from compress.pipeline.step_store import StepStore
from compress.pipeline.torchrun_launch import Launch
from compress.recipe.field_types import Role
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
        console.data({"recipe": plan.recipe.model_dump(mode="json"), "steps": rows})
    else:
        if console.format == "human":
            console.line(dump_recipe(plan.recipe))
        console.table([shown_step(row) for row in rows], ["step", "state", "takes", "memory", "disk", "basis"])
    findings.refuse(here=False)
    for title, reason in plan.missing_targets.items():
        console.warn(f"target {title} will not be measured: {reason}")
    if console.format != "json":
        console.note(_total(rows))
        counts = Estimates(plan, StepStore(options.root)).counts
        due = [(row["seconds"] or 0.0, roles_used(plan.step(row["step"]))) for row in rows]
        if counts and (limit := hour_limit(due, counts)):
            total = f"{counts['train']:,}"
            console.note(f"with about {limit:,} of {total} rows it would take an hour: task.data.limit={limit}")


def _total(rows: list[dict[str, Any]]) -> str:
    """Return the time of all steps that are still to run, as far as it is known."""
    due = [row["seconds"] for row in rows if row["state"] != "done"]
    known = [seconds for seconds in due if seconds is not None]
    unknown = len(due) - len(known)
    steps = "step that has" if unknown == 1 else "steps that have"
    rest = f", and {unknown} {steps} not run here before" if unknown else ""
    return f"estimate: {duration(sum(known))}{rest}; all figures are estimates"


def roles_used(step: Step) -> Sequence[Role]:
    """Return the roles whose rows a step's time is proportional to; none where it is not, as for a cut."""
    return ("train",) if step.trains else PREDICTED_ROLES.get(step.kind, ())


def hour_limit(due: Sequence[tuple[float, Sequence[Role]]], counts: Mapping[Role, int]) -> int | None:
    """Return the limit of rows that keeps a plan to an hour; None where it takes less, or no limit helps.

    Args:
        due: the expected time of each step, 0 where it is done or unknown, and the roles that it is proportional to.
        counts: the rows of each role, all of which are limited.
    """

    def seconds(limit: int) -> float:
        limited = {role: min(count, limit) for role, count in counts.items()}
        return sum(
            time * sum(limited[role] for role in roles) / sum(counts[role] for role in roles) if roles else time
            for time, roles in due
        )

    limit = bisect_right(range(1, counts["train"] + 1), HOUR, key=seconds)
    return int(float(f"{limit:.1e}")) if 0 < limit < counts["train"] else None


def preview(plan: Plan, options: Options, trials: Mapping[str, TrainingSpeed] | None = None) -> list[dict[str, Any]]:
    """Return one row a step; ``trials`` by step name take precedence over earlier runs."""
    store = StepStore(options.root)
    executor = Executor(plan, store, Console("quiet"), Path("unused"), Launch())
    machine = describe(options.root).fingerprint
    estimates = Estimates(plan, store, options.cards)
    records = [estimates.scaled(record) for record in store.records() if record.machine == machine]
    forced = forced_steps(plan, options)

    def row_of(step: Step) -> dict[str, Any]:
        record = None if step.name in forced else executor.cached(step)
        if record:
            executor.outcome.records[step.name] = record
            done = {"seconds": 0.0, "memory": None, "disk": None, "basis": f"took {record.seconds:.1f} s"}
            return {"step": step.name, "state": "done"} | done
        model = plan.model_of(step.name)
        expected = estimates.training(model) if model else None
        trial = (trials or {}).get(step.name)
        if trial and expected:
            estimate = Forecast(trial.seconds(expected), f"{UPDATES} updates tried just now")
        elif records and model and model.training and not expected:
            estimate = Forecast(None, "the rows or the model are not known yet")
        else:
            estimate = forecast(step, records, expected)
        bounds = estimates.describe_bounds(model) if model else None
        started = (store.steps / ".partial" / f"{step.name}-{step.fingerprint}").is_dir()
        return {
            "step": step.name,
            "state": "started" if started else "to do",
            "seconds": _within_limit(estimate.seconds, model.training if model else None),
            "memory": measured_memory(step, records) or (expected.memory if expected else None),
            "disk": expected.disk if expected else None,
            "basis": f"{estimate.basis}; {bounds}" if bounds else estimate.basis,
        }

    return [row_of(step) for step in plan.steps]


def _within_limit(seconds: float | None, settings: Training | None) -> float | None:
    """Return the time of a step whose training may have a limit of time."""
    if seconds is None or settings is None or settings.minutes is None:
        return seconds
    return min(seconds, 60 * settings.minutes * settings.restarts)


def shown_step(row: dict[str, Any]) -> dict[str, Any]:
    """Format a row for people."""
    return {
        **row,
        "takes": duration(row["seconds"]) if row["seconds"] is not None else "unknown",
        "memory": "" if row["memory"] is None else fmt.size(row["memory"]),
        "disk": "" if row["disk"] is None else fmt.size(row["disk"]),
    }
