"""The state and the result of a training, as stored in checkpoints and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from compress.model_history import EvaluationInfo, TrainingInfo


class TrainResult(TrainingInfo):
    """The result of a training; the model holds the weights of update ``best_at``.

    compress.json records the fields of `TrainingInfo`. The others are the time it took and the work it did, from which
    other trainings are estimated.
    """

    seconds: float
    """Time spent, including killed attempts up to their last checkpoint."""
    all_seconds: float = 0.0
    """The same of all trainings of which this one was the best."""
    pieces: int = 0
    """Tokens of all updates, padding included."""
    squares: int = 0
    """Squared padded lengths of all updates."""
    evaluating: float = 0.0
    """Seconds spent on evaluations; included in `seconds`."""
    forecasts: tuple[Mapping[str, Any], ...] = ()
    """Estimates made during the training: their update, seconds, and whether they cover evaluations and the end."""
    epochs: float = 0.0
    """Passes over the rows."""
    ending: str | None = None
    """Why it ended before the last update that the settings allow, or after it with bounds of epochs."""

    @property
    def summary(self) -> str:
        """The result as text: ``0.8911 on select after update 420 of 420, 12,000 rows at 150 rows/s in bf16``."""
        score = "not evaluated" if self.score is None else f"{self.score:.4f} on select after update {self.best_at}"
        rate = f"{self.rows:,} rows at {self.rows / self.seconds:.0f} rows/s in {self.precision}"
        ending = f", {self.epochs:g} epochs ({self.ending})" if self.ending else ""
        return f"{score} of {self.updates}{ending}, {rate}"


@dataclass
class TrainState:
    """The state of a training; what a checkpoint holds besides tensors."""

    done: int = 0
    precision: str = ""
    precision_reason: str | None = None
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
    """The evaluations so far, as `EvaluationInfo`."""
    pieces: int = 0
    squares: int = 0
    evaluating: float = 0.0
    forecasts: list[dict[str, Any]] = field(default_factory=list)
    trained_score: float | None = None
    """The best score after an update: that of the start weights competes, but does not count for patience."""
    tail: int | None = None
    """The update from which the rate falls, where that was decided during the training."""
    ending: str | None = None
    """Why it was decided."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> TrainState:
        """Create from a checkpoint; those of older versions lack some fields and have others that are not used."""
        fields = {"trained_score": fields.get("score"), **fields}
        return cls(**{key: value for key, value in fields.items() if key in cls.__dataclass_fields__})

    def add_losses(self, losses: Mapping[str, float]) -> None:
        """Add the losses of one update; inactive ones are absent."""
        for name, loss in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + loss
            self.counted[name] = self.counted.get(name, 0) + 1

    def mean_losses(self) -> dict[str, float]:
        """Return each loss's mean since the last evaluation, over the updates in which it was active."""
        return {name: total / self.counted[name] for name, total in self.sums.items()}

    def add_evaluation(self, epoch: float, score: float | None) -> None:
        """Add an evaluation, with the mean losses since the one before."""
        losses = {name: float(f"{loss:.6g}") for name, loss in self.mean_losses().items()}
        evaluation = EvaluationInfo(update=self.done, epoch=epoch, score=score, losses=losses)
        self.history.append(evaluation.model_dump())
        self.sums, self.counted = {}, {}
