"""What weighs how much in a distillation, and when: the recipe's phases as they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compress.errors import UsageError
from compress.losses import LOSSES, LayerLoss, OutputLoss
from compress.recipe.loss_schema import Loss, SoftLabel
from compress.recipe.training_schema import Distill, Phase

HARD_LABEL = "hard_label"
"""The task's own loss on what is true, beside those of `LOSSES`."""

SLACK = 1e-9
"""Shares that are added up miss the next phase's beginning by their rounding."""


@dataclass(frozen=True)
class LossPhase:
    """One phase: a part of all updates, with the losses that weigh anything in it."""

    begins: float
    """The share of all updates that are done when it begins."""
    share: float
    sections: Mapping[str, Loss]
    """Each loss's settings, by name."""
    hard_label: float

    def weights(self, progress: float) -> dict[str, float]:
        """By name, the losses that weigh something after this share of all updates.

        Where none does (all of them begin at zero), all of them with a weight of zero: an update needs a loss.
        """
        within = min(1.0, max(0.0, (progress - self.begins) / self.share))
        every = {name: section.weight_at(within) for name, section in self.sections.items()}
        if self.hard_label > 0:
            every[HARD_LABEL] = self.hard_label
        return {name: weight for name, weight in every.items() if weight > 0} or every

    @property
    def answers(self) -> bool:
        """Whether it teaches the model to answer, and not only its layers."""
        return self.hard_label > 0 or any(not isinstance(LOSSES[name], LayerLoss) for name in self.sections)

    @property
    def asks_teacher(self) -> bool:
        """Whether a loss compares answers or layers with the teacher's."""
        return any(isinstance(LOSSES[name], (OutputLoss, LayerLoss)) for name in self.sections)

    @property
    def sees_layers(self) -> bool:
        """Whether a loss compares layers with the teacher's."""
        return any(isinstance(LOSSES[name], LayerLoss) for name in self.sections)


def loss_phases(settings: Distill) -> tuple[LossPhase, ...]:
    """The phases in order; refused where one has nothing to learn from."""
    stages: list[LossPhase] = []
    begins = 0.0
    for number, phase in enumerate(settings.phases_or_default(), 1):
        stage = LossPhase(begins, phase.share, _sections(phase, settings.temperature), phase.hard_label)
        if not (stage.sections or stage.hard_label):
            where = f"in phase {number} " if settings.phases else ""
            raise UsageError(
                f"{where}every distillation loss weighs zero and so does hard_label: there is nothing to learn from."
            )
        stages.append(stage)
        begins += phase.share
    return tuple(stages)


def empty_phases(stages: tuple[LossPhase, ...], updates: int) -> list[int]:
    """Those that none of so many updates falls into."""
    running = {phase_at(stages, update / updates) for update in range(updates)}
    return [number for number in range(len(stages)) if number not in running]


def phase_at(stages: tuple[LossPhase, ...], progress: float) -> int:
    """Which of them runs after this share of all updates."""
    return max(number for number, stage in enumerate(stages) if stage.begins <= progress + SLACK)


def first_selectable_phase(stages: tuple[LossPhase, ...]) -> int:
    """The stage whose models are worth keeping: the last that teaches answers, or the last where none does."""
    return max((number for number, stage in enumerate(stages) if stage.answers), default=len(stages) - 1)


def _sections(phase: Phase, temperature: float) -> dict[str, Loss]:
    """The settings of each loss that weighs something, with the distillation's temperature where it tells none."""
    chosen = phase.losses.chosen()
    soft = chosen.get("soft_label")
    if isinstance(soft, SoftLabel) and soft.temperature is None:
        chosen["soft_label"] = soft.model_copy(update={"temperature": temperature})
    return chosen
