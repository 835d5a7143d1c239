"""Loss weights by training phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compress.errors import UsageError
from compress.losses import LOSSES, LayerLoss, OutputLoss
from compress.recipe.distill_schema import Distill
from compress.recipe.loss_schema import Loss, SoftLabel

HARD_LABEL = "hard_label"
"""Name of the task's loss on true labels, besides those of `LOSSES`."""

TOLERANCE = 1e-9
"""Rounding error of summed shares when they are compared with the start of a phase."""


@dataclass(frozen=True)
class LossPhase:
    """One phase: a share of all updates, with its losses of non-zero weight."""

    start: float
    """The share of all updates before it."""
    share: float
    sections: Mapping[str, Loss]
    """Each loss's settings, by name."""
    hard_label: float

    def weights(self, progress: float) -> dict[str, float]:
        """Return the losses of non-zero weight after this share of all updates, by name.

        If all weights start at zero, all losses are returned with weight zero, since an update needs a loss.
        """
        within = min(1.0, max(0.0, (progress - self.start) / self.share))
        weights = {name: section.weight_at(within) for name, section in self.sections.items()}
        if self.hard_label > 0:
            weights[HARD_LABEL] = self.hard_label
        return {name: weight for name, weight in weights.items() if weight > 0} or weights

    @property
    def layer_losses(self) -> dict[str, LayerLoss]:
        """The losses that compare layers with the teacher's, by name."""
        losses = {name: LOSSES[name] for name in self.sections}
        return {name: loss for name, loss in losses.items() if isinstance(loss, LayerLoss)}

    @property
    def trains_outputs(self) -> bool:
        """Whether it trains the outputs of the model, not only its layers."""
        return self.hard_label > 0 or len(self.layer_losses) < len(self.sections)

    @property
    def needs_teacher(self) -> bool:
        """Whether a loss compares outputs or layers with the teacher's."""
        return any(isinstance(LOSSES[name], (OutputLoss, LayerLoss)) for name in self.sections)


def loss_phases(settings: Distill) -> tuple[LossPhase, ...]:
    """Return the phases in order; raises UsageError for one without losses."""
    phases: list[LossPhase] = []
    start = 0.0
    for number, phase in enumerate(settings.phases_or_default(), 1):
        sections = phase.losses.chosen()
        soft = sections.get("soft_label")
        if isinstance(soft, SoftLabel) and soft.temperature is None:
            sections["soft_label"] = soft.model_copy(update={"temperature": settings.temperature})
        stage = LossPhase(start, phase.share, sections, phase.hard_label)
        if not (stage.sections or stage.hard_label):
            where = f"in phase {number} " if settings.phases else ""
            raise UsageError(
                f"{where}all distillation losses and hard_label have weight zero: there is nothing to train on."
            )
        phases.append(stage)
        start += phase.share
    return tuple(phases)


def phase_at(phases: tuple[LossPhase, ...], progress: float) -> int:
    """Return the index of the phase after this share of all updates."""
    return max(number for number, stage in enumerate(phases) if stage.start <= progress + TOLERANCE)
