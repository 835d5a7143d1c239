"""Loss weights by training phase, and warnings about losses that are missing or that no update uses."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from compress.errors import UsageError
from compress.losses import LOSSES, LayerLoss, OutputLoss
from compress.model_shapes import Start
from compress.recipe.distill_schema import Distill
from compress.recipe.loss_schema import Loss, SoftLabel
from compress.recipe.student_schema import Student

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


def settings_warnings(settings: Distill) -> Iterator[str]:
    """Yield warnings about losses that are missing."""
    phases = loss_phases(settings)
    names = {name for phase in phases for name in phase.sections}
    if not any(phase.needs_teacher for phase in phases):
        source = "cross-encoder, and on labels by hard_label" if names else "labels alone"
        yield f"no loss uses the teacher: the student is trained on the {source}"
    pairs = () if isinstance(settings.layer_map, str) else sorted(settings.layer_map)
    for low, high in pairwise(pairs):
        if low[1] > high[1]:
            yield (
                f"layer_map: {list(low)} and {list(high)} cross: "
                "a higher student layer is paired with a lower teacher layer"
            )
    if not any(phase.trains_outputs for phase in phases):
        yield (
            "no loss trains the outputs (soft_label, margin and hard_label have weight zero): "
            "layers are trained, but the head is not"
        )


def settings_warnings_start(start: Start | None, student: Student) -> Iterator[str]:
    """Yield a warning about a randomly initialised student that was not requested."""
    if start == "random" and student.start != "random":
        yield (
            "the student starts with random weights: no weights of the source model fit these widths "
            "(start: slice explains why; start: random confirms it)"
        )


def settings_warnings_updates(settings: Distill, updates: int) -> Iterator[str]:
    """Yield warnings about phases without updates."""
    phases = loss_phases(settings)
    running = {phase_at(phases, update / updates) for update in range(updates)}
    for number, phase in enumerate(phases):
        if number not in running:
            yield (
                f"phase {number + 1} has none of the {updates} updates (share {phase.share:g}): "
                "its losses are not used; increase epochs or its share"
            )
