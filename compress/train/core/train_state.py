"""The state and the result of a training, as stored in checkpoints and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from compress.measure.timing.step_time_fit import BatchLoad, StepTimes
from compress.model_info import EvaluationInfo, TrainingInfo


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of the model during training."""

    update: int
    epoch: float
    score: float | None
    losses: Mapping[str, float]
    """Each loss's mean since the previous evaluation, over the updates in which it was active."""


@dataclass(frozen=True)
class Cost:
    """The time a training took and the work it did, from which others are estimated."""

    load: BatchLoad
    """Tokens of all updates, including padding."""
    phases: tuple[StepTimes, ...]
    """Step times of each phase; a single phase where the recipe has none."""
    evaluating: float
    """Seconds spent on evaluations."""
    forecasts: tuple[Mapping[str, Any], ...]
    """Estimates made during the training, as `eta.LoggedForecast`."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Cost:
        """Create from the fields of `TrainState`; fields missing in older versions are empty."""
        return cls(
            load=BatchLoad(fields.get("pieces", 0), fields.get("squares", 0)),
            phases=tuple(StepTimes.of(each) for each in fields.get("phases", ())),
            evaluating=fields.get("evaluating", 0.0),
            forecasts=tuple(fields.get("forecasts", ())),
        )

    @property
    def paces(self) -> StepTimes:
        """Step times of all phases together."""
        return sum(self.phases, StepTimes())


@dataclass(frozen=True)
class TrainResult:
    """The result of a training; the model holds the weights of update ``best_at``."""

    seed: int
    score: float | None
    """Best score on select; None where nothing was evaluated."""
    best_at: int
    updates: int
    """Updates done; fewer than planned if patience ended it."""
    rows: int
    seconds: float
    """Time spent, including killed attempts up to their last checkpoint."""
    precision: str
    history: tuple[Evaluation, ...]
    cost: Cost

    @property
    def rows_per_second(self) -> float:
        """Throughput, including evaluations and checkpoints."""
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def info(self) -> TrainingInfo:
        """Return what compress.json records of the training."""
        history = tuple(
            EvaluationInfo(
                update=entry.update,
                epoch=entry.epoch,
                score=entry.score,
                losses={name: float(f"{loss:.6g}") for name, loss in entry.losses.items()},
            )
            for entry in self.history
        )
        return TrainingInfo(
            seed=self.seed,
            updates=self.updates,
            rows=self.rows,
            precision=self.precision,
            score=self.score,
            best_at=self.best_at,
            history=history,
        )

    @property
    def summary(self) -> str:
        """The result as text: ``0.8911 on select after update 420 of 420, 12,000 rows at 150 rows/s in bf16``."""
        score = "not evaluated" if self.score is None else f"{self.score:.4f} on select after update {self.best_at}"
        rate = f"{self.rows:,} rows at {self.rows_per_second:.0f} rows/s in {self.precision}"
        return f"{score} of {self.updates}, {rate}"


@dataclass
class TrainState:
    """The state of a training; what a checkpoint holds besides tensors."""

    done: int = 0
    rows: int = 0
    seconds: float = 0.0
    best_at: int | None = None
    score: float | None = None
    without_better: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    """Sum of each loss since the last evaluation."""
    counted: dict[str, int] = field(default_factory=dict)
    """Number of updates since then in which it was active."""
    history: list[dict[str, Any]] = field(default_factory=list)
    pieces: int = 0
    """Tokens so far, including padding."""
    squares: int = 0
    """Squared padded lengths so far."""
    evaluating: float = 0.0
    """Seconds spent on evaluations; included in `seconds`."""
    phases: list[StepTimes] = field(default_factory=list)
    """Step times of each phase so far."""
    forecasts: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> TrainState:
        """Create from a checkpoint; older ones have one common count of losses, and fields that are no longer used."""
        known = {key: value for key, value in fields.items() if key in cls.__dataclass_fields__}
        if "counted" not in fields:
            known["counted"] = dict.fromkeys(fields.get("sums", {}), fields.get("since", 1))
        known["phases"] = [StepTimes.of(each) for each in fields.get("phases", ())]
        return cls(**known)

    def paces(self, phase: int) -> StepTimes:
        """Return the step times of a phase."""
        while len(self.phases) <= phase:
            self.phases.append(StepTimes())
        return self.phases[phase]

    def add_losses(self, losses: Mapping[str, float]) -> None:
        """Add the losses of one update; inactive ones are absent."""
        for name, loss in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + loss
            self.counted[name] = self.counted.get(name, 0) + 1

    def mean_losses(self) -> dict[str, float]:
        """Return each loss's mean since the last evaluation, over the updates in which it was active."""
        return {name: total / self.counted[name] for name, total in self.sums.items()}
