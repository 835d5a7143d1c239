"""Fills a recipe with the settings of its cards; the recipe's own keys take precedence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from compress.cards import FolderCheckpoint, HubCheckpoint, StudentCard, find_student, find_teacher
from compress.errors import UsageError, first_error
from compress.export_formats import listed_formats
from compress.model_sources import source_kind
from compress.pipeline.preflight.allowed_names import NAMES
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import Student
from compress.recipe.training_schema import Training


def resolve(recipe: Recipe, cards: Sequence[Path] = ()) -> Recipe:
    """Return the recipe with missing settings taken from its teacher's and student's cards, and its formats listed."""
    changes: dict[str, Any] = {"export": listed_formats(recipe)}
    if source_kind(recipe.teacher.source, "teachers", cards) == "card" and recipe.finetune:
        card = find_teacher(recipe.teacher.source, cards)
        pooling = {"pooling": card.pooling} if card.pooling else {}
        changes["finetune"] = _below(recipe.finetune, pooling | dict(card.finetune), f"teacher card {card.name}")
    student = recipe.student
    if student and student.source and source_kind(student.source, "students", cards) == "card":
        shape = find_student(student.source, cards)
        changes["student"] = _student(student, shape)
        if recipe.distill:
            changes["distill"] = _below(recipe.distill, shape.distill, f"student card {shape.name}")
    return recipe.model_copy(update=changes)


def _below(section: Training, card: Mapping[str, Any], title: str) -> Training:
    """Return the card's settings overridden by those of the recipe."""
    own, model = section.model_dump(include=section.model_fields_set), type(section)
    try:
        read = model.model_validate(dict(card), context=NAMES)  # on its own first: it may use short forms
        theirs = read.model_dump(include=read.model_fields_set)
        if own.get("phases"):  # these have losses of their own
            theirs = {key: value for key, value in theirs.items() if key not in ("losses", "hard_label")}
        return model.model_validate({**theirs, **own}, context=NAMES)
    except ValidationError as error:
        raise UsageError(f"{title}: {first_error(error)}") from error


def _student(student: Student, card: StudentCard) -> Student:
    """The shape a card names; a checkpoint of just this shape becomes the source."""
    unset = {"source", *(() if student.layers is not None else ("layers",))}  # null: as many as the card's
    own = student.model_dump(include=student.model_fields_set - unset)
    start: dict[str, Any] = {"start": card.start}
    if isinstance(card.start, HubCheckpoint):
        start = {"source": card.start.hub, "revision": card.start.revision, "pooling": card.pooling}
    if isinstance(card.start, FolderCheckpoint):
        start = {"source": card.start.folder, "pooling": card.pooling}
    return Student.model_validate({**card.shape.model_dump(exclude_none=True), **start, **own})
