"""What is written down of a training: where it stands, how it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from compress.measure.timing.step_time_fit import BatchLoad, StepTimes
from compress.model_info import EvaluationInfo, TrainingInfo


@dataclass(frozen=True)
class Evaluation:
    """One look at the model on the way."""

    update: int
    epoch: float
    score: float | None
    losses: Mapping[str, float]
    """Each loss's mean since the evaluation before, over the updates in which it counted."""


@dataclass(frozen=True)
class Cost:
    """What a training took and what it did for that, by which others are forecast."""

    load: BatchLoad
    """Pieces of all updates, padding included."""
    phases: tuple[StepTimes, ...]
    """How fast its updates were, phase by phase; one where the recipe tells none."""
    evaluating: float
    """Seconds that evaluations took."""
    forecasts: tuple[Mapping[str, Any], ...]
    """What the training itself forecast on its way, as `train.forecast.Told`."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Cost:
        """From the fields of `TrainState`; nothing where an older version wrote them."""
        return cls(
            load=BatchLoad(told.get("pieces", 0), told.get("squares", 0)),
            phases=tuple(StepTimes.of(each) for each in told.get("phases", ())),
            evaluating=told.get("evaluating", 0.0),
            forecasts=tuple(told.get("forecasts", ())),
        )

    @property
    def paces(self) -> StepTimes:
        """Of all phases together."""
        return sum(self.phases, StepTimes())


@dataclass(frozen=True)
class TrainResult:
    """How a training went; the model holds the weights of ``best_at``."""

    seed: int
    score: float | None
    """The best score on select; None where nothing was evaluated."""
    best_at: int
    updates: int
    """Updates made, fewer than planned when patience ended it."""
    rows: int
    seconds: float
    """Time spent, killed attempts included as far as their checkpoints reach."""
    precision: str
    history: tuple[Evaluation, ...]
    cost: Cost

    @property
    def rows_per_second(self) -> float:
        """Throughput, evaluations and checkpoints included."""
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
        """Read as ``0.8911 on select after update 420 of 420, 12,000 rows at 150 rows/s in bf16``."""
        score = "not evaluated" if self.score is None else f"{self.score:.4f} on select after update {self.best_at}"
        rate = f"{self.rows:,} rows at {self.rows_per_second:.0f} rows/s in {self.precision}"
        return f"{score} of {self.updates}, {rate}"


@dataclass
class TrainState:
    """Where a training stands; what a checkpoint holds beside tensors."""

    done: int = 0
    rows: int = 0
    seconds: float = 0.0
    best_at: int | None = None
    score: float | None = None
    without_better: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    """Each loss since the last evaluation."""
    counted: dict[str, int] = field(default_factory=dict)
    """In how many updates since then it counted."""
    history: list[dict[str, Any]] = field(default_factory=list)
    pieces: int = 0
    """Word pieces so far, padding included."""
    squares: int = 0
    """Squared padded lengths so far."""
    evaluating: float = 0.0
    """Seconds that evaluations took, which `seconds` holds too."""
    phases: list[StepTimes] = field(default_factory=list)
    """How fast updates are, phase by phase, as far as it has come."""
    forecasts: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> TrainState:
        """From a checkpoint; older ones counted all losses together, and may tell what is not used any more."""
        known = {key: value for key, value in told.items() if key in cls.__dataclass_fields__}
        if "counted" not in told:
            known["counted"] = dict.fromkeys(told.get("sums", {}), told.get("since", 1))
        known["phases"] = [StepTimes.of(each) for each in told.get("phases", ())]
        return cls(**known)

    def paces(self, phase: int) -> StepTimes:
        """Those of a phase."""
        while len(self.phases) <= phase:
            self.phases.append(StepTimes())
        return self.phases[phase]

    def add_losses(self, losses: Mapping[str, float]) -> None:
        """Those of one update; one that weighs nothing at the time is not among them."""
        for name, loss in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + loss
            self.counted[name] = self.counted.get(name, 0) + 1

    def mean_losses(self) -> dict[str, float]:
        """Each loss since the last evaluation, over the updates in which it counted."""
        return {name: total / self.counted[name] for name, total in self.sums.items()}
