"""How long a plan will take, from what earlier runs took on this machine; where there is none, it says so."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from compress.pipeline.forecast.cost_estimates import Expected, training_of
from compress.pipeline.forecast.throughput_history import Rates
from compress.pipeline.graph import Plan, Step
from compress.pipeline.step_store import StepRecord
from compress.pipeline.steps.measure_step import turn_seconds


@dataclass(frozen=True)
class Forecast:
    """An estimate and what it rests on."""

    seconds: float | None
    basis: str


def forecast(
    step: Step,
    plan: Plan,
    records: Iterable[StepRecord],
    machine: str,
    train_rows: int | None,
    expected: Expected | None = None,
) -> Forecast:
    """Estimate ``step`` from ``records`` of the same kind on the same machine.

    What is ``expected`` of a training carries rates over from trainings of other lengths and depths; where none of the
    kind is here, from those of another kind.
    """
    here = [record for record in records if record.machine == machine]
    if expected and (found := _by_rates(step, expected, here)):
        return found
    alike = [record for record in here if record.kind == step.kind]
    if not alike:
        return Forecast(None, "no earlier run here")
    amount = planned_work(step, plan, train_rows)
    rated = [record for record in alike if record.work]
    if amount and rated:
        closest = _closest(step.settings, rated)
        rate = statistics.median(record.seconds / record.work for record in closest if record.work)
        unit = "seconds of turns" if step.kind == "measure" else "rows"
        return Forecast(rate * amount, f"{amount:,.0f} {unit} at the rate of {_runs(closest)}")
    if training_of(plan, step.kind) and train_rows is None:
        return Forecast(None, "the number of rows is not known yet")
    closest = _closest(step.settings, alike)
    return Forecast(statistics.median(record.seconds for record in closest), _runs(closest))


def _by_rates(step: Step, expected: Expected, records: list[StepRecord]) -> Forecast | None:
    """A training by the operations in it; what else a step does takes as long as it took before."""
    rated = [record for record in records if record.rates]
    same = [record for record in rated if record.kind == step.kind]
    if not rated:
        return None
    closest = _closest(step.settings, same) if same else rated
    pairs = [(record, Rates.model_validate(record.rates)) for record in closest]
    times = [
        expected.seconds(rates) + (max(0.0, record.seconds - rates.trained) if same else 0.0) for record, rates in pairs
    ]
    load = expected.work.first + expected.work.later
    kind = "" if same else f" ({', '.join(sorted({record.kind for record in closest}))})"
    pieces = f"{load.pieces * expected.work.restarts:,} word pieces"
    return Forecast(statistics.median(times), f"{pieces} at the rate of {_runs(closest)}{kind}")


def planned_work(step: Step, plan: Plan, train_rows: int | None) -> float | None:
    """Rows that a training step will go through, or seconds of turns; None where that is unknown or means nothing."""
    if step.kind == "measure":
        present = [target for target in plan.recipe.targets if target.title not in plan.missing_targets]
        titles = {entry.key: entry.scores for entry in plan.variants}
        return turn_seconds(titles, present, plan.recipe.measure)
    training = training_of(plan, step.kind)
    if not training or train_rows is None:
        return None
    rows = training.epochs * train_rows
    if training.max_steps:
        rows = min(rows, training.max_steps * training.batch_size * training.accumulate)
    return rows * training.restarts


def _closest(settings: Mapping[str, Any], records: list[StepRecord]) -> list[StepRecord]:
    """The records whose settings share most with these: the same teacher or variant is a better guide than any."""
    shared = [sum(record.settings.get(key) == value for key, value in settings.items()) for record in records]
    return [record for record, count in zip(records, shared, strict=True) if count == max(shared)]


def _runs(records: list[StepRecord]) -> str:
    return f"{len(records)} earlier run{'s' if len(records) != 1 else ''} here"
