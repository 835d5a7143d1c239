"""Forecasts how long the steps of a plan take, from earlier runs on this machine; without any, it says so."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from compress.errors import pluralize
from compress.pipeline.forecast.cost_estimates import TrainingEstimate
from compress.pipeline.forecast.training_cost import Throughput, trained_rows
from compress.pipeline.graph import Plan, Step
from compress.pipeline.step_store import StepRecord
from compress.pipeline.steps.measure_step import planned_seconds


@dataclass(frozen=True)
class Forecast:
    """An estimate and its basis."""

    seconds: float | None
    basis: str


def forecast(
    step: Step,
    plan: Plan,
    records: Sequence[StepRecord],
    train_rows: int | None,
    expected: TrainingEstimate | None = None,
) -> Forecast:
    """Forecast ``step`` from ``records`` of earlier runs on this machine.

    Trainings are forecast from their ``expected`` operations, at the throughput of earlier trainings of the same kind
    or else of any kind; other steps by their amount of work, or by the time of the most similar step.
    """
    if expected and (by_operations := _by_operations(step, expected, records)):
        return by_operations
    same_kind = [record for record in records if record.kind == step.kind]
    if not same_kind:
        return Forecast(None, "no earlier run here")
    work = planned_work(step, plan, train_rows)
    measured = _most_similar(step.settings, [record for record in same_kind if record.work])
    if work and measured:
        rate = statistics.median(record.seconds / record.work for record in measured if record.work)
        unit = "seconds of turns" if step.kind == "measure" else "rows"
        return Forecast(rate * work, f"{work:,.0f} {unit} at the rate of {_runs(measured)}")
    if step.trains and train_rows is None:
        return Forecast(None, "the number of rows is not known yet")
    similar = _most_similar(step.settings, same_kind)
    return Forecast(statistics.median(record.seconds for record in similar), _runs(similar))


def measured_memory(step: Step, records: Sequence[StepRecord]) -> int | None:
    """Return the peak memory of the most similar earlier steps of the same kind; None where none was measured."""
    measured = [record for record in records if record.kind == step.kind and record.own_peak_memory is not None]
    peaks = [record.own_peak_memory or 0 for record in _most_similar(step.settings, measured)]
    return round(statistics.median(peaks)) if peaks else None


def _by_operations(step: Step, expected: TrainingEstimate, records: Sequence[StepRecord]) -> Forecast | None:
    rates = [(record, rate) for record in records if (rate := throughput_in(record))]
    same_kind = [record for record, _ in rates if record.kind == step.kind]
    chosen = _most_similar(step.settings, same_kind or [record for record, _ in rates])
    if not chosen:
        return None
    times = [
        expected.operations * rate.seconds_per_operation + (max(0.0, record.seconds - rate.trained) if same_kind else 0)
        for record, rate in rates
        if record in chosen
    ]
    kinds = "" if same_kind else f" ({', '.join(sorted({record.kind for record in chosen}))})"
    return Forecast(
        statistics.median(times), f"{expected.operations:.1e} operations at the rate of {_runs(chosen)}{kinds}"
    )


def throughput_in(record: StepRecord) -> Throughput | None:
    """Return the throughput stored in a record; None where nothing was trained, or an older version stored it."""
    try:
        return Throughput.model_validate(record.rates) if record.rates else None
    except ValidationError:
        return None


def planned_work(step: Step, plan: Plan, train_rows: int | None) -> float | None:
    """Return the rows of a training, or the seconds of all timing turns; None for other steps and while unknown."""
    if step.kind == "measure":
        scores = {variant.key: variant.scores for variant in plan.variants}
        return planned_seconds(scores, plan.present_targets, plan.recipe.measure)
    model = plan.model_of(step.name)
    if model is None or model.training is None or train_rows is None:
        return None
    return trained_rows(model.training, train_rows) * model.training.restarts


def _most_similar(settings: Mapping[str, Any], records: Sequence[StepRecord]) -> list[StepRecord]:
    """Return the records that have the most settings in common with these."""
    common = [sum(record.settings.get(key) == value for key, value in settings.items()) for record in records]
    return [record for record, count in zip(records, common, strict=True) if count == max(common)]


def _runs(records: Sequence[StepRecord]) -> str:
    return f"{pluralize(len(records), 'earlier run')} here"
