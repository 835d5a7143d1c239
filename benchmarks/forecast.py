"""`python -m benchmarks.forecast`: forecasts of a real recipe's trainings against what they then take.

Three forecasts of each training: what `compress plan --calibrate` says before it runs, what the training itself says
after its first updates, and what a later plan says of the same recipe from this run's record. The goal of the first two
is a ratio between 0.8 and 1.25. It wants a machine that does nothing else.
"""

from __future__ import annotations

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
    with tempfile.TemporaryDirectory(prefix="compress-") as room:
        where = Options(runs=options.runs or Path(room), until=options.until)
        plan = prepare(options.recipe, overrides, where)
        before = calibrate(plan, where, console)
        estimates = Estimates(plan, StepStore(where.root))
        expected = {kind: estimates.expected(kind) for kind in before}
        told = {kind: before[kind].forecast(found).seconds for kind, found in expected.items() if found}
        records = _run(plan, where, console)
    rows = [row for kind, record in records.items() for row in _rows(kind, record, told.get(kind))]
    console.table(rows)
    return int(not options.trial and any(row["passed"] == "no" for row in rows))


def _run(plan: Plan, options: Options, console: Console) -> dict[str, StepRecord]:
    """The records of the trainings that ran now, by kind."""
    outcome = execute(plan, options, console).outcome
    ran = {name for name, status in outcome.status.items() if status == "ran"}
    return {record.kind: record for name, record in outcome.records.items() if name in ran and record.rates}


def _rows(kind: str, record: StepRecord, before: float | None) -> list[dict[str, Any]]:
    """A row each forecast of one training."""
    rates = record.rates
    assert rates is not None
    found = [
        ("plan --calibrate, the whole step", before, record.seconds),
        ("itself, its updates", rates["foretold"], rates["trained"] - rates["evaluating"]),
        ("itself, with evaluations", rates["foretold_whole"], rates["trained"]),
    ]
    return [_row(kind, what, told, taken) for what, told, taken in found if told is not None and taken > 0]


def _row(kind: str, what: str, told: float, taken: float) -> dict[str, Any]:
    ratio = told / taken
    return {
        "training": kind,
        "forecast by": what,
        "forecast": duration(told),
        "taken": duration(taken),
        "ratio": f"{ratio:.2f}",
        "passed": "yes" if LEAST <= ratio <= MOST else "no",
    }


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", default="quickstart", help="a recipe file or a shipped recipe's name")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--until", default="prune", metavar="STEP", help="the last training (prune)")
    parser.add_argument("--runs", type=Path, help="keep the steps here, where they must not stand yet")
    parser.add_argument("--trial", action="store_true", help="in small: shows that it runs, decides nothing")
    parser.add_argument("--format", choices=("human", "json", "quiet"), default="human")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
