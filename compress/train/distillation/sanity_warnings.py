"""Warnings about valid settings that are probably unintended, given before training."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from compress.model_shapes import Start
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import Student
from compress.train.distillation.phases import loss_phases, phase_at


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
