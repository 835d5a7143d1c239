"""Forecasts how long the steps of a plan take: from earlier runs on this machine, or roughly.

Rough times are of steps that never ran here: operations at a rate measured in a moment, or usual times.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from compress.errors import pluralize
from compress.measure.resources.footprint import flops_per_token
from compress.model_folder.model_info import ShapeInfo
from compress.pipeline.forecast.cost_estimates import PREDICTED_ROLES, Estimates, TrainingEstimate
from compress.pipeline.graph import Step
from compress.pipeline.step_store import StepRecord
from compress.steps import KINDS as MODEL_STEPS
from compress.steps.model_step import PlannedModel
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
    measured = [record for record in records if record.kind == step.kind and record.peak_memory is not None]
    peaks = [record.peak_memory or 0 for record in _most_similar(step, measured)]
    return round(statistics.median(peaks)) if peaks else None


def _most_similar(step: Step, records: Sequence[StepRecord]) -> list[StepRecord]:
    """Return the records that have the most settings in common with a step."""
    common = [sum(record.settings.get(key) == value for key, value in step.settings.items()) for record in records]
    return [record for record, count in zip(records, common, strict=True) if count == max(common)]


def _runs(records: Sequence[StepRecord]) -> str:
    return f"{pluralize(len(records), 'earlier run')} here"


TOLERANCE = 2.0
"""A step takes from this part of its rough time to as many times of it."""
MATRIX = (512, 768, 3072)
"""Rows, inner, columns: a batch in a layer of a base model."""
MEASURING = 0.2
"""Seconds of measuring the rate of matrix products."""
TRAINING_SHARE = 0.6
"""Share of that rate which trainings and predictions reach. Measured with MiniLM in bf16 on a busy AMD EPYC: 0.7 with
two threads (5.9 of 10.2 billion operations a second before and 6.6 after it), 1.0 with one (5.2 of 6.0 and 4.2). In
fp32 it is less."""
START = 10.0
"""Seconds in which a training loads torch and its model, and encodes its rows."""
TIMING = 90.0
"""Seconds of measuring without a budget."""
WORKER = 3.0
"""Seconds in which a process starts that times a model."""
USUAL: Mapping[str, float] = {
    **{name: kind.seconds for name, kind in MODEL_STEPS.items()},
    "data": 5.0,
    "workload": 5.0,
    "latency": 60.0,
    "timing untrained models": 40.0,
    "export": 20.0,
    "floor": 8.0,
    "package-format": 10.0,
    "pretrain": 60.0,
}
"""Usual seconds by kind of step, besides what is computed; measured on two busy cores of an AMD EPYC."""
PROBED_TEXTS, PROBE_FITS = 6_000, 12.0
"""Texts that the step probe encodes with each model, and the seconds of fitting: MiniLM on an AMD EPYC."""
OTHERS = 1.0
"""Usual seconds of other kinds."""


def matrix_rate() -> float:
    """Return how many operations a second matrix products have on this machine at the moment."""
    rows, inner, columns = MATRIX
    first = np.full((rows, inner), 0.5, np.float32)
    second = np.full((inner, columns), 0.5, np.float32)
    out = np.empty((rows, columns), np.float32)
    times, end = list[float](), time.perf_counter() + MEASURING
    while len(times) < 3 or time.perf_counter() < end:
        began = time.perf_counter()
        np.matmul(first, second, out=out)
        times.append(time.perf_counter() - began)
    return 2 * rows * inner * columns / statistics.median(times)


@dataclass(frozen=True)
class RoughTimes:
    """Rough times of the steps of a plan."""

    estimates: Estimates
    """Which may use raw rows."""
    rate: float
    """As `matrix_rate` returns it."""

    def seconds(self, step: Step) -> tuple[float, float]:
        """Return about how long a step takes, as expected and at most."""
        model = self.estimates.plan.model_of(step.name)
        if model is not None and model.training is not None and step.trains:
            return self._training(model)
        expected = self._other(step)
        return expected, expected

    def _training(self, model: PlannedModel) -> tuple[float, float]:
        estimate = self.estimates.training(model)
        if estimate is None or not estimate.operations:
            return START, START
        most = estimate.most_operations or estimate.operations
        return START + self._computing(estimate.operations), START + self._computing(most)

    def _other(self, step: Step) -> float:
        if step.kind == "measure":
            return self._timing(step)
        if step.kind == "probe":
            texts = PROBED_TEXTS * self._passes(self.estimates.shape(self.estimates.plan.teacher), 1)
            return len(step.needs) * (PROBE_FITS + self._computing(texts))
        usual = USUAL.get(step.kind, OTHERS)
        if step.kind in MODEL_STEPS and (rows := MODEL_STEPS[step.kind].gradient_rows):
            return usual + self._computing(3 * self._passes(self._model_of(step), rows))
        counts = self.estimates.known_counts or {}
        if step.predicted_rows:
            return usual + self._computing(
                self._passes(self._model_of(step), step.predicted_rows(counts.get("train", 0)))
            )
        if rows := sum(counts.get(role, 0) for role in PREDICTED_ROLES.get(step.kind, ())):
            times = len(step.settings.get("names", ())) or 1  # perturbations of the texts
            return usual + self._computing(times * self._passes(self._model_of(step), rows))
        return usual

    def _computing(self, operations: float) -> float:
        return operations / (TRAINING_SHARE * self.rate)

    def _passes(self, shape: ShapeInfo | None, rows: float) -> float:
        """Return the operations of predicting rows; 0 where they are unknown."""
        lengths, costs = self.estimates.lengths, flops_per_token(shape) if shape else None
        if lengths is None or costs is None:
            return 0.0
        return rows * (costs[0] * float(lengths.mean()) + costs[1] * float((lengths**2).mean()))

    def _model_of(self, step: Step) -> ShapeInfo | None:
        """Return the shape of the model whose variant a step reads, the teacher's where that is unknown."""
        plan = self.estimates.plan
        names = {name: entry.model for entry in plan.variants for name in (*entry.scores.values(), entry.fallback)}
        return self.estimates.shape(plan.model(names[step.name]) if step.name in names else plan.teacher)

    def _timing(self, step: Step) -> float:
        """Return the time of measuring: its budget, or all turns and the starts of all processes."""
        settings, plan = self.estimates.plan.recipe.measure, self.estimates.plan
        if not settings.by_rounds:
            return settings.budget or TIMING
        jobs = len(plan.variants) * len(plan.present_targets)
        return jobs * ((settings.rounds or 30) * settings.seconds + (settings.processes or 10) * WORKER)
