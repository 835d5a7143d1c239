"""Completes a recipe: what the cards of its teacher and students say, and the formats that it means."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from compress.cards import FolderCheckpoint, HubCheckpoint, StudentCard, TeacherCard, find_student, find_teacher
from compress.errors import UsageError, first_error
from compress.model_sources import source_kind
from compress.pipeline.preflight.recipe_checks import NAMES
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import AnyStudent, LightStudent, Part, Shared, Student, one_transformer
from compress.recipe.training_schema import Finetune, Training
from compress.steps.finetune_step import FINETUNE
from compress.steps.model_step import with_settings
from compress.variants import listed_formats


def resolve(recipe: Recipe, cards: Sequence[Path] = ()) -> Recipe:
    """Return the recipe with missing settings taken from its teacher's and student's cards, and its formats listed."""
    changes: dict[str, Any] = {"export": listed_formats(recipe)}
    if source_kind(recipe.teacher.source, "teachers", cards) == "card" and recipe.finetune:
        changes["finetune"] = _of_teacher(recipe, recipe.finetune, find_teacher(recipe.teacher.source, cards))
    students = [_of_card(student, cards) for student in recipe.students]
    for _, named in students:
        if named and named.distill and recipe.distill:
            changes["distill"] = _below(recipe.distill, named.distill, f"student card {named.name}")
    changes["shared"] = _of_checkpoint(recipe.shared, cards)
    changes["students"] = one_transformer(tuple(student for student, _ in students))
    return recipe.model_copy(update=changes)


def _of_teacher(recipe: Recipe, settings: Finetune, card: TeacherCard) -> Training:
    """Return the settings of a fine-tuning with those of its teacher's card that have an effect beside them."""
    theirs, title = dict(card.finetune), f"teacher card {card.name}"
    if card.pooling:
        theirs = {"pooling": card.pooling, **theirs}
    both = with_settings(recipe, FINETUNE.path, _below(settings, theirs, title))
    unused = {problem.path[-1] for problem in FINETUNE.problems(both)}
    return _below(settings, {key: value for key, value in theirs.items() if key not in unused}, title)


def _of_card(student: AnyStudent, cards: Sequence[Path]) -> tuple[AnyStudent, StudentCard | None]:
    """Return a student with what its card says, and the card; None for a student that names none."""
    if isinstance(student, (LightStudent, Part)) or student.source is None:
        return student, None
    if source_kind(student.source, "students", cards) != "card":
        return student, None
    card = find_student(student.source, cards)
    return _student(student, card), card


def _of_checkpoint(shared: Shared, cards: Sequence[Path]) -> Shared:
    """Return a shared student with the checkpoint that its card names."""
    if shared.source is None or source_kind(shared.source, "students", cards) != "card":
        return shared
    card = find_student(shared.source, cards)
    named = _checkpoint(card)
    if not named:
        reason = f"the card {card.name} names no checkpoint, which a shared student begins as"
        raise UsageError(f"shared.source: {reason}.", hint="shared: {layers: 3} has some of the teacher's layers")
    own = shared.model_dump(include=shared.model_fields_set - {"source"})
    return Shared.model_validate({**named, **own})


def _checkpoint(card: StudentCard) -> dict[str, Any]:
    """Return the checkpoint that a card names, as keys of a student; empty where it names none."""
    if isinstance(card.start, HubCheckpoint):
        return {"source": card.start.hub, "revision": card.start.revision, "pooling": card.pooling}
    if isinstance(card.start, FolderCheckpoint):
        return {"source": card.start.folder, "pooling": card.pooling}
    return {}


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


def _student(student: Student, card: StudentCard) -> AnyStudent:
    """The shape a card names; a checkpoint of just this shape becomes the source."""
    if isinstance(card.shape, LightStudent):
        own = student.model_dump(include=student.model_fields_set - {"source"})
        return _read_light({**card.shape.model_dump(include=card.shape.model_fields_set), **own}, card.name)
    unset = {"source", *(() if student.layers is not None else ("layers",))}  # null: as many as the card's
    own = student.model_dump(include=student.model_fields_set - unset)
    start = _checkpoint(card) or {"start": card.start}
    return Student.model_validate({**card.shape.model_dump(exclude_none=True), **start, **own})


def _read_light(settings: Mapping[str, Any], card: str) -> LightStudent:
    try:
        return LightStudent.model_validate(settings)
    except ValidationError as error:
        raise UsageError(f"student card {card}: {first_error(error)}") from error
