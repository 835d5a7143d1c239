"""Warnings about valid settings that are probably unintended, given before training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from compress.batch_arrays import SOFT_LABELS
from compress.model_shapes import Start
from compress.recipe.training_schema import Distill, Student
from compress.tasks.base import Row
from compress.train.distillation.layer_map import Pairs
from compress.train.distillation.phases import empty_phases, loss_phases

INIT_TEXT: Mapping[Start, str] = {
    "teacher": "from copies of whole layers (teacher)",
    "slice": "from the most important parts of the layers (slice)",
    "svd": "from the principal directions of the layers (svd)",
    "random": "with random weights",
}
"""By the recipe's `start`."""


def settings_warnings(settings: Distill) -> Iterator[str]:
    """Yield warnings about losses that are missing."""
    phases = loss_phases(settings)
    names = {name for phase in phases for name in phase.sections}
    if not names:
        yield "no loss uses the teacher: the student is trained on the labels alone"
    elif not any(phase.needs_teacher for phase in phases):
        yield "no loss uses the teacher: the student is trained on the cross-encoder, and on labels by hard_label"
    if crossing := crossing_pairs(settings.layer_map):
        (low, above), (high, below) = crossing
        yield (
            f"layer_map: [{low}, {above}] and [{high}, {below}] cross: "
            "a higher student layer is paired with a lower teacher layer"
        )
    if not any(phase.trains_outputs for phase in phases):
        yield (
            "no loss trains the outputs (soft_label, margin and hard_label have weight zero): "
            "layers are trained, but the head is not"
        )


def settings_warnings_teachers(settings: Distill, train: Sequence[Row], unlabelled: Sequence[Row]) -> Iterator[str]:
    """Yield a warning about further teachers that are unused, since all training rows have soft labels."""
    if settings.teachers and train[0].get(SOFT_LABELS) is not None and not (len(unlabelled) or settings.augment):
        yield "every row has soft labels, so the outputs of distill.teachers are not used"


def crossing_pairs(pairs: str | Pairs) -> Pairs | None:
    """Return the first two pairs in which the higher student layer has the lower teacher layer, if any."""
    ordered = () if isinstance(pairs, str) else sorted(pairs)
    return next((two for two in combinations(ordered, 2) if two[0][0] < two[1][0] and two[0][1] > two[1][1]), None)


def settings_warnings_start(start: Start | None, student: Student) -> Iterator[str]:
    """Yield a warning about a randomly initialised student that was not requested."""
    if start == "random" and student.start != "random":
        yield (
            "the student starts with random weights: no weights of the source model fit these widths "
            "(start: slice explains why; start: random confirms it)"
        )


def describe_init(start: Start | None) -> str:
    """Return the initialisation of a student as the end of a log line."""
    return "" if start is None else f"; initialised {INIT_TEXT[start]}"


def settings_warnings_updates(settings: Distill, updates: int) -> Iterator[str]:
    """Yield warnings about phases without updates."""
    for number in empty_phases(loss_phases(settings), updates):
        share = settings.phases_or_default()[number].share
        yield (
            f"phase {number + 1} has none of the {updates} updates (share {share:g}): "
            "its losses are not used; increase epochs or its share"
        )
