"""Forecasts how long the steps of a plan take, from earlier runs on this machine; without any, it says so."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from compress.errors import pluralize
from compress.pipeline.forecast.cost_estimates import TrainingEstimate
from compress.pipeline.graph import Step
from compress.pipeline.step_store import StepRecord
from compress.train.training_costs import Throughput

UPDATES = 16
"""Updates of each training that are tried to measure its speed."""


@dataclass(frozen=True)
class Forecast:
    """An estimate and its basis."""

    seconds: float | None
    basis: str
    most: float | None = None
    """Seconds that trainings take at most which may end by themselves."""


@dataclass(frozen=True)
class TrainingSpeed:
    """The speed of a training: of an earlier run, or measured in a few updates."""

    seconds_per_operation: float
    other_seconds: float
    """Seconds that the step took in addition to its training: loading, encoding, building."""

    @classmethod
    def of(cls, rates: Mapping[str, Any] | None, seconds: float) -> TrainingSpeed | None:
        """Return the speed of a step; None where nothing was trained, or an older version stored its throughput."""
        try:
            throughput = Throughput.model_validate(rates)
        except ValidationError:
            return None
        rate = throughput.seconds_per_operation
        return cls(rate, max(0.0, seconds - throughput.trained - throughput.probe_operations * rate))

    def seconds(self, expected: TrainingEstimate) -> float:
        """Return the expected time of a full step."""
        return expected.operations * self.seconds_per_operation + self.other_seconds

    def most(self, expected: TrainingEstimate) -> float | None:
        """Return the time that it takes at most; None where nothing ends by itself."""
        if expected.most_operations is None:
            return None
        return expected.most_operations * self.seconds_per_operation + self.other_seconds


def forecast(step: Step, records: Sequence[StepRecord], expected: TrainingEstimate | None = None) -> Forecast:
    """Forecast ``step`` from ``records`` of earlier runs on this machine.

    Trainings are forecast from their ``expected`` operations, at the speed of earlier trainings of the same kind or
    else of any kind; other steps take as long as the most similar one. Measuring takes as long as its budget.
    """
    budget = _budget(step.settings)
    same_kind = [each for each in records if each.kind == step.kind and _budget(each.settings) == budget]
    if expected is not None and expected.operations and (by_operations := _by_operations(step, records, expected)):
        return by_operations
    if not same_kind:
        return Forecast(budget, "measure.budget" if budget else "no earlier run here")
    similar = _most_similar(step, same_kind)
    return Forecast(statistics.median(record.seconds for record in similar), _runs(similar))


def _budget(settings: Mapping[str, Any]) -> float | None:
    """Return the seconds that a step may measure; None where the recipe gives no limit, and for other steps."""
    measure = settings.get("measure")
    return measure.get("budget") if isinstance(measure, Mapping) else None


def _by_operations(step: Step, records: Sequence[StepRecord], expected: TrainingEstimate) -> Forecast | None:
    trained = [record for record in records if TrainingSpeed.of(record.rates, record.seconds)]
    similar = _most_similar(step, [record for record in trained if record.kind == step.kind] or trained)
    speeds = [TrainingSpeed.of(record.rates, record.seconds) for record in similar]
    if not speeds:
        return None
    kinds = ", ".join(sorted({record.kind for record in similar} - {step.kind}))
    basis = f"{expected.operations:.1e} operations at the rate of {_runs(similar)}"
    seconds = statistics.median(speed.seconds(expected) for speed in speeds if speed)
    longest = [most for speed in speeds if speed and (most := speed.most(expected)) is not None]
    most = statistics.median(longest) if longest else None
    return Forecast(seconds, f"{basis} ({kinds})" if kinds else basis, most)


def measured_memory(step: Step, records: Sequence[StepRecord]) -> int | None:
    """Return the peak memory of the most similar earlier steps of the same kind; None where none was measured."""
    measured = [record for record in records if record.kind == step.kind and record.own_peak_memory is not None]
    peaks = [record.own_peak_memory or 0 for record in _most_similar(step, measured)]
    return round(statistics.median(peaks)) if peaks else None


def _most_similar(step: Step, records: Sequence[StepRecord]) -> list[StepRecord]:
    """Return the records that have the most settings in common with a step."""
    common = [sum(record.settings.get(key) == value for key, value in step.settings.items()) for record in records]
    return [record for record, count in zip(records, common, strict=True) if count == max(common)]


def _runs(records: Sequence[StepRecord]) -> str:
    return f"{pluralize(len(records), 'earlier run')} here"
