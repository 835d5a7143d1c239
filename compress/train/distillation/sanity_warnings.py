"""What a distillation may do that nobody wished, told before it begins: nothing here is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from compress.model_shapes import Start
from compress.recipe.training_schema import Distill, Student
from compress.tasks.base import Row
from compress.train.distillation.layer_map import Pairs
from compress.train.distillation.phases import empty_phases, loss_phases

BEGAN: Mapping[Start, str] = {
    "teacher": "with copies of whole layers (teacher)",
    "slice": "with the most important parts of the layers (slice)",
    "svd": "with the principal directions of the layers (svd)",
    "random": "with random weights",
}
"""By the recipe's `start`."""


def settings_warnings(settings: Distill) -> Iterator[str]:
    """What the losses of a recipe leave out."""
    stages = loss_phases(settings)
    names = {name for stage in stages for name in stage.sections}
    if not names:
        yield "no loss asks the teacher: the student learns from the labels alone"
    elif not any(stage.asks_teacher for stage in stages):
        yield "no loss asks the teacher: the student learns from the cross-encoder, and from labels by hard_label"
    if crossing := crossing_pairs(settings.layer_map):
        (low, above), (high, below) = crossing
        yield (
            f"layer_map: [{low}, {above}] and [{high}, {below}] cross: "
            "a higher layer of the student follows a lower one of the teacher"
        )
    if not any(stage.answers for stage in stages):
        yield (
            "no loss teaches answers (soft_label, margin and hard_label weigh nothing): "
            "layers learn, and the head stays as it begins"
        )


def settings_warnings_teachers(settings: Distill, train: Sequence[Row], unlabelled: Sequence[Row]) -> Iterator[str]:
    """Further teachers whose answers nobody follows; all rows of train bring answers of their own, or none does."""
    if settings.teachers and train[0].get("soft_labels") is not None and not (len(unlabelled) or settings.augment):
        yield "every row brings the answers that are learnt, so those of distill.teachers are not"


def crossing_pairs(pairs: str | Pairs) -> Pairs | None:
    """The first two pairs of a map of which the higher student layer follows the lower teacher layer."""
    ordered = () if isinstance(pairs, str) else sorted(pairs)
    return next((two for two in combinations(ordered, 2) if two[0][0] < two[1][0] and two[0][1] > two[1][1]), None)


def settings_warnings_start(start: Start | None, student: Student) -> Iterator[str]:
    """A student that is drawn at random though nobody said so."""
    if start == "random" and student.start != "random":
        yield (
            "the student starts from random weights: nothing of the model it is made of fits these widths "
            "(start: slice would say why; start: random says that it is wished)"
        )


def describe_init(start: Start | None) -> str:
    """The end of the line that tells what a student was made of."""
    return "" if start is None else f"; it began {BEGAN[start]}"


def settings_warnings_updates(settings: Distill, updates: int) -> Iterator[str]:
    """Phases that are over before they begin."""
    for number in empty_phases(loss_phases(settings), updates):
        share = settings.phases_or_default()[number].share
        yield (
            f"phase {number + 1} gets none of the {updates} updates, as its share is {share:g}: "
            "its losses are never learnt from; more epochs, or a larger share"
        )
