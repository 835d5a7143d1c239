"""`python -m benchmarks.forecast`: forecasts of a real recipe's trainings against what they then take.

Forecasts of each training: by `compress plan --calibrate` before it runs, and by the training itself after its first
updates. The goal is a ratio between 0.8 and 1.25. Run it on an otherwise idle machine.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from compress.console import Console, duration
from compress.pipeline.forecast.cost_estimates import Estimates
from compress.pipeline.forecast.trial_updates import calibrate
from compress.pipeline.graph import Plan
from compress.pipeline.run import Options, execute, prepare
from compress.pipeline.step_store import StepRecord, StepStore

LEAST, MOST = 0.8, 1.25
TRIAL = ("task.data.limit=600", "finetune.epochs=1", "distill.epochs=2")


def main() -> int:
    """Forecast, run, compare; 1 where a forecast was off by more than a quarter."""
    options = _parsed()
    console = Console(options.format)
    overrides = [*options.overrides, *(TRIAL if options.trial else ())]
    with tempfile.TemporaryDirectory(prefix="compress-") as scratch:
        where = Options(runs=options.runs or Path(scratch), until=options.until)
        plan = prepare(options.recipe, overrides, where)
        before = calibrate(plan, where, console)
        estimates = Estimates(plan, StepStore(where.root))
        expected = {model.step: estimates.training(model) for model in plan.models if model.step in before}
        forecasts = {step: before[step].seconds(cost) for step, cost in expected.items() if cost}
        records = _run(plan, where, console)
    rows = [row for step, record in records.items() for row in _rows(step, record, forecasts.get(step))]
    console.table(rows)
    return int(not options.trial and any(row["passed"] == "no" for row in rows))


def _run(plan: Plan, options: Options, console: Console) -> dict[str, StepRecord]:
    """Return the records of the trainings that ran now, by step."""
    outcome = execute(plan, options, console).outcome
    ran = {name for name, status in outcome.status.items() if status == "ran"}
    return {name: record for name, record in outcome.records.items() if name in ran and record.rates}


def _rows(step: str, record: StepRecord, before: float | None) -> list[dict[str, Any]]:
    """Return a row for each forecast of one training."""
    rates = record.rates
    assert rates is not None
    forecasts = [
        ("plan --calibrate, the full step", before, record.seconds),
        ("itself, its updates", rates["foretold"], rates["trained"] - rates["evaluating"]),
        ("itself, with evaluations", rates["foretold_whole"], rates["trained"]),
    ]
    return [_row(step, what, seconds, taken) for what, seconds, taken in forecasts if seconds is not None and taken > 0]


def _row(step: str, what: str, seconds: float, taken: float) -> dict[str, Any]:
    ratio = seconds / taken
    return {
        "training": step,
        "forecast by": what,
        "forecast": duration(seconds),
        "taken": duration(taken),
        "ratio": f"{ratio:.2f}",
        "passed": "yes" if LEAST <= ratio <= MOST else "no",
    }


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", default="quickstart", help="a recipe file or a shipped recipe's name")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--until", default="prune", metavar="STEP", help="the last training (prune)")
    parser.add_argument("--runs", type=Path, help="store the steps here; they must not exist yet")
    parser.add_argument("--trial", action="store_true", help="a few updates: tests that it runs, decides nothing")
    parser.add_argument("--format", choices=("human", "json", "quiet"), default="human")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
