"""The step that makes a student without attention, which learns from the teacher what it gives out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.errors import ModelError, Problem, UsageError
from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import light_shape
from compress.recipe.distill_schema import Distill, LightDistill
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import LightStudent
from compress.steps.distillations import (
    Rates,
    hashed_distillation,
    on_outputs,
    problems_of_training,
    run_distillation,
    smoke_distillation,
    teacher_checks,
    unlabelled_steps,
)
from compress.steps.model_configs import Check, ModelConfigs
from compress.steps.model_step import ModelStep, PlannedModel, Smoke, StepKind, hashed_settings
from compress.steps.vocabulary_step import check_vocabulary, smoke_rule
from compress.tasks import KINDS

if TYPE_CHECKING:
    from compress.pipeline.graph import Plan
    from compress.pipeline.step_context import StepContext

SECTION = "light"
SMALL, FEW_BUCKETS = {"hidden": 24, "head_width": 16}, 50
"""Sizes of a smoke run."""


def plan_light(plan: Plan, cards: Sequence[Path], parent: str) -> None:
    """The recipe's students without attention, each of the teacher."""
    recipe, teacher = plan.recipe, plan.teacher
    for problem in _problems(recipe):  # of students that a card describes
        raise UsageError(f"student: {problem.message}")
    for name, student in recipe.light_students.items():
        settings = light_training(recipe.distill or Distill(), student)
        hashed = {"student": hashed_settings(student), "distill": hashed_distillation(settings), "seed": recipe.seed}
        if "ngrams" in student.start:
            hashed["ngrams_of"] = "rows spread over all"  # results of versions that took the first ones are not reused
        run = partial(distill, teacher=teacher.step, student=student, settings=settings, seed=recipe.seed, step=name)
        needs = ["data", teacher.step, *unlabelled_steps(plan)]
        plan.add(name, SECTION, hashed, needs, run, trains=True, optional=True)
        plan.models.append(PlannedModel(name, name, teacher.name, SECTION, settings, student, has_attention=False))


def light_training(settings: Distill, student: LightStudent) -> LightDistill:
    """Return the training of a student: the recipe's distillation without what is about layers."""
    return on_outputs(settings, LightDistill, student)


def distill(
    context: StepContext, teacher: str, student: LightStudent, settings: LightDistill, seed: int, step: str
) -> Rates:
    """Make a student of the teacher; it learns from unlabelled texts too where the plan has some."""
    from compress.train.light_student import distill_light

    return run_distillation(
        context, distill_light, (context.inputs[teacher], student), settings, seed, teacher, step=step
    )


def _in_effect(recipe: Recipe) -> bool:
    return bool(recipe.light_students)


def _problems(recipe: Recipe) -> Iterator[Problem]:
    """Yield kinds of students that cannot do the task, and a distillation that is off."""
    kind = KINDS[recipe.task.kind]
    for number, student in enumerate(recipe.students):
        if not isinstance(student, LightStudent):
            continue
        path = ("student", number) if len(recipe.students) > 1 else ("student",)
        if kind.needs_attention:
            yield Problem((*path, "kind"), f"{student.kind} cannot do {recipe.task.kind}: {kind.needs_attention}")
        elif kind.needs_order and student.kind == "static":
            reason = f"static cannot do {recipe.task.kind}: {kind.needs_order}; conv reads them in order"
            yield Problem((*path, "kind"), reason)
        elif not recipe.distill:
            yield Problem((*path, "kind"), f"{student.kind} has nothing to start from but its training: distill is off")
        else:
            yield from problems_of_training(path, partial(light_training, recipe.distill, student))


def _checks(configs: ModelConfigs) -> Iterator[Check]:
    for student in configs.recipe.light_students.values():
        if student.vocabulary:
            yield "student", partial(check_vocabulary, student.vocabulary, configs, configs.recipe.teacher)
        yield "student", partial(_check_embedding, student, configs)
    if configs.recipe.distill and not configs.recipe.student:  # else it is checked for that student
        yield from teacher_checks(configs, ("distill",), configs.recipe.distill)


def _check_embedding(student: LightStudent, configs: ModelConfigs) -> None:
    """Refuse a width of embeddings for a task that has none."""
    if student.embedding is not None and KINDS[configs.recipe.task.kind].head != "sentence-embedding":
        raise UsageError(
            f"embedding: {student.embedding} sets the width of a text's embedding, and {configs.recipe.task.kind} has"
            " none.",
            hint="hidden sets the width of the vectors",
        )


def _shape(student: LightStudent, parent: ShapeInfo | None, cards: Sequence[Path]) -> ShapeInfo | None:
    try:
        return parent and light_shape(student, parent.vocabulary)
    except ModelError:
        return None


def _shrink(recipe: Recipe, smoke: Smoke) -> Recipe:
    """The same kinds, with few vectors; the settings of the training are those of `distill`, which is small already."""
    students = tuple(
        each.model_copy(update=_small_sizes(each)) if isinstance(each, LightStudent) else each
        for each in recipe.students
    )
    if recipe.light_students and recipe.distill and recipe.distill.max_steps is None:
        recipe = recipe.model_copy(update={"distill": smoke_distillation(recipe.distill, smoke)})
    return recipe.model_copy(update={"students": students})


def _small_sizes(student: LightStudent) -> dict[str, Any]:
    few = {"buckets": FEW_BUCKETS} if student.ngrams > 1 else {}
    return {**SMALL, **few, "factors": student.factors and 8, "vocabulary": smoke_rule(student.vocabulary)}


def _start(student: LightStudent, parent: str, folder: Path | None) -> str:
    """`what the teacher makes of pieces and n-grams`."""
    read = [title for name, title in (("pieces", "pieces"), ("ngrams", "n-grams")) if name in student.start]
    return f"what the {parent} makes of {' and '.join(read)}" if read else "random vectors"


LIGHT = ModelStep(
    title="distilling a student without attention",
    path=("student",),
    kinds={SECTION: StepKind(seconds=20.0)},
    in_effect=_in_effect,
    plan=plan_light,
    shape=_shape,
    follows=("distill",),
    reads_unlabelled=_in_effect,
    problems=_problems,
    checks=_checks,
    shrink=_shrink,
    start=_start,
    other_losses="those of distill that compare outputs",
    tag="distilled",
    hint="texts without labels (task.data.unlabelled) bring it closer to its teacher; only conv reads words in order",
)
