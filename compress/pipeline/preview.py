"""What `compress plan` shows: each step, whether it stands, and what it will take (time, memory, disk: estimates)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compress.console import Console, duration
from compress.environment import describe
from compress.pipeline.calibrate import Calibrated
from compress.pipeline.estimates import Estimates
from compress.pipeline.execute import Executor
from compress.pipeline.forecast import forecast
from compress.pipeline.graph import Plan
from compress.pipeline.launch import Launch
from compress.pipeline.run import Options, forced_steps
from compress.pipeline.store import StepStore
from compress.report.words import size


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
        record = None if step.name in forced else executor.standing(step)
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
    return "" if count is None else size(count)
