"""What `compress plan` shows: each step, whether it stands, and how long it will take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from compress.console import Console
from compress.environment import describe
from compress.pipeline.execute import Executor
from compress.pipeline.forecast import forecast
from compress.pipeline.graph import Plan
from compress.pipeline.launch import Launch
from compress.pipeline.run import Options, forced_steps
from compress.pipeline.store import StepStore


def preview(plan: Plan, options: Options) -> list[dict[str, Any]]:
    """One row a step."""
    store = StepStore(options.root)
    executor = Executor(plan, store, Console("quiet"), Path("unused"), Launch())
    records = list(store.records())
    machine = describe(options.root).fingerprint
    rows = []
    forced = forced_steps(plan, options)
    for step in plan.steps:
        record = None if step.name in forced else executor.standing(step)
        if record:
            executor.outcome.records[step.name] = record
            rows.append({"step": step.name, "state": "stands", "seconds": 0.0, "basis": f"took {record.seconds:.1f} s"})
            continue
        started = (store.steps / ".partial" / f"{step.name}-{step.fingerprint}").is_dir()
        estimate = forecast(step, plan, records, machine, _train_rows(plan, store))
        state = "begun" if started else "to do"
        rows.append({"step": step.name, "state": state, "seconds": estimate.seconds, "basis": estimate.basis})
    return rows


def _train_rows(plan: Plan, store: StepStore) -> int | None:
    """How many rows training has, once the data step has counted them."""
    data = plan.step("data")
    path = store.folder("data", data.fingerprint) / "data.json"
    try:
        return int(json.loads(path.read_bytes())["counts"]["train"])
    except (OSError, KeyError, ValueError):
        return None
