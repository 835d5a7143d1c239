"""The state and the forecast of every step of a plan, and the time of all that is left."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from compress.console import Console, duration
from compress.environment import describe
from compress.errors import CompressError
from compress.pipeline.execute import Executor
from compress.pipeline.forecast.cost_estimates import Estimates
from compress.pipeline.forecast.raw_sample import RawSample, raw_sample
from compress.pipeline.forecast.time_forecast import (
    TOLERANCE,
    UPDATES,
    Forecast,
    RoughTimes,
    TrainingSpeed,
    forecast,
    matrix_rate,
    measured_memory,
)
from compress.pipeline.graph import Plan, Step
from compress.pipeline.step_store import StepRecord, StepStore
from compress.pipeline.steps.quantized_steps import ADMISSION, screened_out
from compress.pipeline.torchrun_launch import Launch
from compress.recipe.training_schema import Training

StepRow = dict[str, Any]
"""A step's state and forecast: `seconds` as expected, None while nothing similar ran here; `least` and `most` seconds
between which it is expected, and `at_most` where trainings may end by themselves."""


@dataclass(frozen=True)
class StepForecasts:
    """Forecasts the steps of a plan; nothing runs, and torch is not loaded."""

    plan: Plan
    store: StepStore
    cards: Sequence[Path]
    forced: Collection[str]

    def rows(self, trials: Mapping[str, TrainingSpeed] | None = None) -> list[StepRow]:
        """Return one row a step; ``trials`` by step name take precedence over earlier runs."""
        executor = Executor(self.plan, self.store, Console("quiet"), Path("unused"), Launch())
        machine = describe(self.store.root).fingerprint
        estimates = Estimates(self.plan, self.store, self.cards)
        records = [estimates.scaled(record) for record in self.store.records() if record.machine == machine]
        skipped: set[str] = set()

        def row_of(step: Step) -> StepRow:
            record = None if step.name in self.forced else executor.cached(step)
            nothing: StepRow = {"step": step.name, "seconds": 0.0, "memory": None, "disk": None}
            nothing |= {"least": 0.0, "most": 0.0, "at_most": None}
            if record:
                executor.outcome.records[step.name] = record
                return nothing | {"state": "done", "basis": f"took {record.seconds:.1f} s"}
            if reason := _reason_to_skip(step, skipped, self.store, executor.outcome.records):
                skipped.add(step.name)
                return nothing | {"state": "skipped", "basis": reason}
            return self._due(step, records, estimates, (trials or {}).get(step.name))

        return [row_of(step) for step in self.plan.steps]

    def _due(
        self, step: Step, records: Sequence[StepRecord], estimates: Estimates, trial: TrainingSpeed | None
    ) -> StepRow:
        """Return the row of a step that is to run."""
        model = self.plan.model_of(step.name)
        expected = estimates.training(model) if model else None
        if trial and expected:
            estimate = Forecast(trial.seconds(expected), f"{UPDATES} updates tried just now", trial.most(expected))
        elif records and model and model.training and not expected:
            estimate = Forecast(None, "the rows or the model are not known yet")
        else:
            estimate = forecast(step, records, expected)
        trainings = estimates.describe_trainings(model) if model else None
        started = (self.store.steps / ".partial" / f"{step.name}-{step.fingerprint}").is_dir()
        training = model.training if model else None
        seconds, at_most = (_within_limit(each, training) for each in (estimate.seconds, estimate.most))
        least = most = seconds
        if seconds is None:
            usual, longest = (_within_limit(each, training) or 0.0 for each in self._rough.seconds(step))
            least, most = usual / TOLERANCE, usual * TOLERANCE
            at_most = longest * TOLERANCE if longest > usual else None
        return {
            "step": step.name,
            "state": "started" if started else "to do",
            "seconds": seconds,
            "least": least,
            "most": most,
            "at_most": at_most,
            "memory": measured_memory(step, records) or (expected.memory if expected else None),
            "disk": expected.disk if expected else None,
            "basis": f"{estimate.basis}; {trainings}" if trainings else estimate.basis,
        }

    @property
    def described_rows(self) -> str:
        """The rows that rough times follow: `2,400 rows`."""
        counts = self._rough.estimates.counts
        return f"{counts['train']:,} rows" if counts else self._raw.text if self._raw else "rows of unknown number"

    @cached_property
    def _raw(self) -> RawSample | None:
        try:
            return raw_sample(self.plan.recipe.task)
        except CompressError:  # what reads the files says so
            return None

    @cached_property
    def _rough(self) -> RoughTimes:
        return RoughTimes(Estimates(self.plan, self.store, self.cards, self._raw), matrix_rate())


def _reason_to_skip(
    step: Step, skipped: Collection[str], store: StepStore, records: Mapping[str, StepRecord]
) -> str | None:
    """Return why a run will skip a step: an earlier run screened its file out, or it needs a step that is skipped."""
    if step.kind == ADMISSION and (screening := records.get(step.needs[-1])):
        return screened_out(store.folder_of(screening), step.settings["variant"])
    absent = None if step.tolerant else next((need for need in step.needs if need in skipped), None)
    return f"needs {absent}, which is skipped" if absent else None


def _within_limit(seconds: float | None, settings: Training | None) -> float | None:
    """Return the time of a step whose training may have a limit of time."""
    if seconds is None or settings is None or settings.minutes is None:
        return seconds
    return min(seconds, 60 * settings.minutes * settings.trial_count)


def is_rough(row: StepRow) -> bool:
    """Return whether a step's time is known roughly only."""
    return row["seconds"] is None


def span_of(rows: Sequence[StepRow]) -> str:
    """Return the time of steps together: `12 min`, or `8 to 30 min`."""
    return format_span(sum(row["least"] for row in rows), sum(row["most"] for row in rows))


def format_span(least: float, most: float) -> str:
    """Format seconds from ``least`` to ``most``: `12 min 30 s` where they are equal, `8 to 30 min`, `1.5 to 6 h`."""
    if least == most:
        return duration(most)
    for seconds, unit, digits in ((3600.0, "h", 1), (60.0, "min", 0), (1.0, "s", 0)):
        if most >= 2 * seconds or seconds == 1.0:
            first, last = (f"{max(each / seconds, 10.0**-digits):.{digits}f}" for each in (least, most))
            return f"{last} {unit}" if first == last else f"{first} to {last} {unit}"
    raise AssertionError


def time_left(rows: Sequence[StepRow], later: Sequence[StepRow] = ()) -> Callable[[Sequence[Step], float], str]:
    """Return a function that describes the time left, of the steps to do and the seconds that the first one took.

    ``later``: steps that are another run's, and follow.
    """
    known = {row["step"]: row for row in rows}

    def describe_left(due: Sequence[Step], spent: float) -> str:
        first, *others = (known[step.name] for step in due)
        least, most = (
            max(0.0, first[end] - spent) + sum(row[end] for row in (*others, *later)) for end in ("least", "most")
        )
        return f"about {format_span(least, most)} left" if most >= 1.0 else ""

    return describe_left
