"""What `compress plan` shows: each step, whether it stands, what it will take (estimates), and what is in the way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compress.console import Console, duration
from compress.environment import describe
from compress.pipeline.execute import Executor
from compress.pipeline.forecast.cost_estimates import Estimates
from compress.pipeline.forecast.time_forecast import forecast
from compress.pipeline.forecast.trial_updates import Calibrated, calibrate
from compress.pipeline.graph import Plan
from compress.pipeline.run import Options, forced_steps, look_over
from compress.pipeline.step_store import StepStore
from compress.pipeline.torchrun_launch import Launch
from compress.recipe.load import dump_recipe
from compress.report.format_numbers import format_size


def show_plan(plan: Plan, options: Options, console: Console, *, calibrated: bool = False, here: bool = False) -> None:
    """Print the long form of a recipe and its steps, and refuse what a run would refuse.

    What only this machine lacks is a warning, unless the run is to be ``here`` or its pace ``calibrated`` first.
    """
    found = look_over(plan, options)
    if here or calibrated:
        found.refuse()
    rows = preview(plan, options, calibrate(plan, options, console) if calibrated else {})
    for lack in found.lacking:
        console.warn(f"a run cannot start on this machine: {lack}")
    for doubt in found.doubts:
        console.warn(doubt)
    if console.format == "json":
        console.data({"recipe": plan.recipe.model_dump(mode="json"), "steps": rows})
    else:
        if console.format == "human":
            console.line(dump_recipe(plan.recipe))
        console.table([shown_step(row) for row in rows], ["step", "state", "takes", "memory", "disk", "basis"])
    found.refuse(here=False)
    for title, reason in plan.missing_targets.items():
        console.warn(f"target {title} will not be measured: {reason}")
    if console.format != "json":
        console.note(_sum(rows))


def _sum(rows: list[dict[str, Any]]) -> str:
    """The time of all steps that are still to run, as far as it is known."""
    known = [row["seconds"] for row in rows if row["state"] != "stands" and row["seconds"] is not None]
    unknown = sum(row["state"] != "stands" and row["seconds"] is None for row in rows)
    rest = f", and {unknown} steps that have not run here before" if unknown else ""
    return f"estimate: {duration(sum(known))}{rest}; nothing here is more than an estimate"


def preview(plan: Plan, options: Options, calibrated: Mapping[str, Calibrated] | None = None) -> list[dict[str, Any]]:
    """One row a step; ``calibrated`` trainings come before what earlier runs tell."""
    store = StepStore(options.root)
    executor = Executor(plan, store, Console("quiet"), Path("unused"), Launch())
    records = list(store.records())
    machine = describe(options.root).fingerprint
    rows: list[dict[str, Any]] = []
    estimates = Estimates(plan, store, options.cards)
    forced = forced_steps(plan, options)
    for step in plan.steps:
        record = None if step.name in forced else executor.cached(step)
        if record:
            executor.outcome.records[step.name] = record
            told = {"seconds": 0.0, "memory": None, "disk": None, "basis": f"took {record.seconds:.1f} s"}
            rows.append({"step": step.name, "state": "stands", **told})
            continue
        started = (store.steps / ".partial" / f"{step.name}-{step.fingerprint}").is_dir()
        expected = estimates.expected(step.kind) if step.trains else None
        tried = (calibrated or {}).get(step.kind) if expected else None
        if expected and tried:
            estimate = tried.forecast(expected)
        else:
            estimate = forecast(step, plan, records, machine, estimates.rows(step.kind), expected)
        memory, disk = (expected.memory, expected.disk) if expected else (None, None)
        told = {"seconds": estimate.seconds, "memory": memory, "disk": disk, "basis": estimate.basis}
        rows.append({"step": step.name, "state": "begun" if started else "to do", **told})
    return rows


def shown_step(row: dict[str, Any]) -> dict[str, Any]:
    """A row for people."""
    return {
        **row,
        "takes": duration(row["seconds"]) if row["seconds"] is not None else "unknown",
        "memory": _size(row["memory"]),
        "disk": _size(row["disk"]),
    }


def _size(count: int | None) -> str:
    return "" if count is None else format_size(count)
