"""The step that makes a student: a smaller model, of the teacher's layers or of a checkpoint, that learns from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from compress.errors import ModelError, Problem
from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import changes_shape, plan_student_shape, shape_of_folder, student_shape
from compress.model_sources import identity, local_folder, source_name
from compress.recipe.distill_schema import Distill
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import Student
from compress.steps.distillations import (
    Rates,
    distillation_checks,
    hashed_distillation,
    run_distillation,
    smoke_distillation,
    unlabelled_steps,
)
from compress.steps.model_configs import Check, ModelConfigs, known_shape
from compress.steps.model_step import ModelStep, NamedModel, PlannedModel, Smoke, StepKind, hashed_settings
from compress.steps.vocabulary_step import add_vocabulary, check_vocabulary, smoke_rule
from compress.train.distillation.phases import settings_warnings_start

if TYPE_CHECKING:
    from compress.pipeline.graph import Plan
    from compress.pipeline.step_context import StepContext

SECTION = "distill"
STARTS = {"teacher": "", "slice": "the most important parts of ", "svd": "the principal directions of "}
"""What a student takes from the chosen layers."""
NARROW = {"hidden": 24, "ffn": 48, "factors": 8}
"""Widths in place of a student's in a smoke run; its teacher has hidden 32 and an FFN of 64."""


def plan_student(plan: Plan, cards: Sequence[Path], parent: str) -> None:
    """The recipe's student."""
    assert plan.recipe.student is not None
    add_student(plan, cards, student=plan.recipe.student, distill=plan.recipe.distill)


def add_student(
    plan: Plan,
    cards: Sequence[Path],
    *,
    student: Student,
    distill: Distill | Literal[False],
    name: str = "student",
    step: str = SECTION,
) -> None:
    """A smaller model that learns from the teacher; one with a vocabulary of its own gets that before it learns."""
    if student.vocabulary is None:
        _add_built(plan, cards, student, distill, step)
    else:
        step = _add_own_vocabulary(plan, cards, student, distill, name, step)
    plan.models.append(PlannedModel(name, step, plan.teacher.name, SECTION, distill or None, student))


def _add_built(
    plan: Plan, cards: Sequence[Path], student: Student, settings: Distill | Literal[False], step: str
) -> None:
    """The step that makes a student of the teacher's layers, and trains it unless ``settings`` are false."""
    shape = hashed_student(student)
    if student.factors:
        shape["factors_by"] = "piece counts"
    if student.source:
        shape["source"] = identity(student.source, student.revision, cards)
    hashed = {"student": shape, "distill": settings and hashed_distillation(settings), "seed": plan.recipe.seed}
    teacher = plan.teacher.step
    run = partial(distill, teacher=teacher, student=student, settings=settings, seed=plan.recipe.seed)
    needs = ["data", teacher, *(unlabelled_steps(plan) if settings else ())]
    stage = "" if settings else "building the student"
    plan.add(step, SECTION, hashed, needs, run, trains=True, optional=True, stage=stage)


def _add_own_vocabulary(
    plan: Plan, cards: Sequence[Path], student: Student, settings: Distill | Literal[False], name: str, step: str
) -> str:
    """The steps that make an untrained student, remove pieces from it and train it; returns the last one's name."""
    start = add_untrained(plan, cards, student, name)
    if not settings:
        return start
    teacher, seed = plan.teacher.step, plan.recipe.seed
    run = partial(recover, teacher=teacher, pruned=start, settings=settings, seed=seed, step=step)
    hashed = {"distill": hashed_distillation(settings), "start": start, "seed": seed}
    needs = ["data", teacher, start, *unlabelled_steps(plan)]
    return plan.add(step, SECTION, hashed, needs, run, trains=True, optional=True)


def add_untrained(plan: Plan, cards: Sequence[Path], student: Student, name: str) -> str:
    """The steps that make a student called ``name`` and remove pieces from it, untrained; returns the last model."""
    built, start = f"build-{name}", f"{name}-vocabulary"
    _add_built(plan, cards, student, False, built)
    plan.models.append(PlannedModel(built, built, plan.teacher.name, SECTION, None, student, evaluated=False))
    if student.vocabulary is None:
        return built
    add_vocabulary(plan, student.vocabulary, None, built, start)
    plan.models.append(PlannedModel(start, start, built, SECTION, evaluated=False))
    return start


def hashed_student(settings: Student) -> dict[str, Any]:
    """Return the settings of a student that change its layers; its vocabulary has a step of its own."""
    return {key: value for key, value in hashed_settings(settings).items() if key != "vocabulary"}


def distill(
    context: StepContext,
    teacher: str,
    student: Student,
    settings: Distill | Literal[False],
    seed: int,
    step: str = SECTION,
    recovers: bool = False,
) -> Rates:
    """Make a student of the teacher; it learns from unlabelled texts too where the plan has some."""
    from compress.train.distill import distill as train

    models = context.inputs[teacher], student
    return run_distillation(context, train, models, settings, seed, teacher, step=step, recovers=recovers)


def recover(
    context: StepContext, teacher: str, pruned: str, settings: Distill, seed: int, step: str, is_cut: bool = False
) -> Rates:
    """Train a model that was cut, or whose vocabulary was: it is distilled as a finished student."""
    student = Student(source=str(context.inputs[pruned]))
    return distill(context, teacher, student, settings, seed, step, recovers=is_cut)


def _in_effect(recipe: Recipe) -> bool:
    return recipe.student is not None


def _reads_unlabelled(recipe: Recipe) -> bool:
    return recipe.student is not None and bool(recipe.distill or recipe.student.vocabulary)


def _named_models(recipe: Recipe) -> Iterator[NamedModel]:
    if recipe.student and recipe.student.source:
        yield NamedModel(("student",), recipe.student.source, recipe.student.revision, "students")


def _shape(student: Student, parent: ShapeInfo | None, cards: Sequence[Path]) -> ShapeInfo | None:
    if student.source:
        parent = shape_of_folder(local_folder(student.source, student.revision, cards))
    try:
        return parent and student_shape(parent, student)
    except ModelError:  # reported by the checks before a run
        return None


def _problems(recipe: Recipe) -> Iterator[Problem]:
    """Yield what is of a checkpoint, for a student that is made of its teacher."""
    for number, student in enumerate(recipe.students):
        path = ("student", number) if len(recipe.students) > 1 else ("student",)
        for name in ("revision", "pooling") if isinstance(student, Student) and student.source is None else ():
            if getattr(student, name) is not None:
                reason = "is of a checkpoint (source), and this student is made of its teacher"
                yield Problem((*path, name), reason)


def _checks(configs: ModelConfigs) -> Iterator[Check]:
    student, settings = configs.recipe.student, configs.recipe.distill
    assert student is not None
    yield "student", partial(_check_student, student, configs)
    if student.vocabulary:
        yield "student", partial(check_vocabulary, student.vocabulary, configs)
    if settings:
        yield from distillation_checks(configs, (SECTION,), settings, pruned=False)


def _check_student(student: Student, configs: ModelConfigs) -> None:
    """Refuse a shape that the student's origin does not allow, and embeddings or a tokenizer that do not fit."""
    if shape := known_shape(configs.origin):
        plan_student_shape(shape, student)
    if student.embedding is not None or student.source:
        from compress.steps.teacher_student_compat import check_student

        check_student(student, configs)


def _warnings(configs: ModelConfigs) -> Iterator[str]:
    student = configs.recipe.student
    if student is None or (student.source and not changes_shape(student)):
        return
    if (shape := known_shape(configs.origin)) is not None:
        start = plan_student_shape(shape, student).start
        yield from (f"student: {warning}" for warning in settings_warnings_start(start, student))


def _shrink(recipe: Recipe, smoke: Smoke) -> Recipe:
    """One layer, initialised in the same way; narrower and factorised where the recipe's is."""
    if not recipe.students:
        return recipe
    recipe = recipe.model_copy(update={SECTION: recipe.distill and smoke_distillation(recipe.distill, smoke)})
    if student := recipe.student:
        widths = {key: width for key, width in NARROW.items() if getattr(student, key) is not None}
        if student.heads is not None:
            widths["heads"] = 3 if "hidden" in widths else 2  # heads of the teacher's size, or of another
        kept: dict[str, Any] = {"choose": student.choose, "start": student.start}
        recipe = recipe.with_student(Student(layers=1, vocabulary=smoke_rule(student.vocabulary), **kept, **widths))
    return recipe


def _start(student: Student, parent: str, folder: Path | None) -> str:
    own = "; a vocabulary of its own" if student.vocabulary else ""
    return _start_of_layers(student, parent, folder) + own


def _start_of_layers(student: Student, parent: str, folder: Path | None) -> str:
    """`layers 1, 3, 5 of the teacher`, or `random weights`."""
    name = f"the {parent}"
    if student.source is not None:
        name, folder = source_name(student.source), local_folder(student.source, student.revision)
        if not changes_shape(student):
            return f"the checkpoint {name}"
    origin = shape_of_folder(folder)
    if origin is None:  # the checkpoint was removed since; the student is still there
        return f"parts of {name}"
    shape = plan_student_shape(origin, student)
    if shape.start == "random":
        return "random weights"
    layers = ("layer " if len(shape.layers) == 1 else "layers ") + ", ".join(map(str, shape.layers))
    factors = f"; word vectors in {shape.factors} factors" if shape.factors else ""
    return f"{STARTS[shape.start]}{layers} of {name}{factors}"


DISTILL = ModelStep(
    title="distilling the student",
    path=(SECTION,),
    training=(SECTION,),
    kinds={SECTION: StepKind(version=3)},
    in_effect=_in_effect,
    plan=plan_student,
    shape=_shape,
    reads_unlabelled=_reads_unlabelled,
    named_models=_named_models,
    problems=_problems,
    checks=_checks,
    warnings=_warnings,
    shrink=_shrink,
    start=_start,
    tag="distilled",
    hint="more layers, or texts without labels (task.data.unlabelled), bring a student closer to its teacher",
)
