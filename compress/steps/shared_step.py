"""The steps of a shared student, which contains smaller ones, and of each part that is taken out and trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.errors import CompressError, ModelError, Problem, UsageError, pluralize
from compress.families import family_named, require_prunable
from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import part_shape, student_shape
from compress.recipe.distill_schema import Distill, SharedDistill
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import Part, Shared, Student, pieces_name
from compress.steps.distill_step import add_untrained
from compress.steps.distillations import (
    Rates,
    check_made_student,
    hashed_distillation,
    on_outputs,
    run_distillation,
    smoke_distillation,
    teacher_checks,
    unlabelled_steps,
)
from compress.steps.model_configs import Check, Config, ModelConfigs, config_of, known_shape
from compress.steps.model_step import ModelStep, NamedModel, PlannedModel, Smoke, StepKind
from compress.steps.vocabulary_step import add_vocabulary, check_pieces_left, check_vocabulary, smoke_rule

if TYPE_CHECKING:
    from compress.pipeline.graph import Plan
    from compress.pipeline.step_context import StepContext

SECTION, PART = "shared", "part"
OF_STUDENT = {"source", "revision", "pooling", "layers", "factors", "vocabulary"}
"""Keys of the section that are those of a student."""
SMALL = {"heads": 2, "ffn": 8, "layers": 1}
"""A part of the tiny model of a smoke run."""


def plan_shared(plan: Plan, cards: Sequence[Path], parent: str) -> None:
    """The shared student, and the recipe's parts of it."""
    add_shared(plan, cards)
    settings = plan.recipe.distill
    assert settings
    sources = {name: add_part_pieces(plan, part) for name, part in plan.recipe.parts.items()}
    for name, part in plan.recipe.parts.items():
        whole = sources[name]
        hashed: dict[str, Any] = {"part": hashed_part(part), "distill": hashed_distillation(settings)}
        hashed |= {"seed": plan.recipe.seed, "parent": whole}
        bound: dict[str, Any] = {"part": part, "settings": settings, "seed": plan.recipe.seed, "step": name}
        needs = ["data", plan.teacher.step, whole, *unlabelled_steps(plan)]
        run = partial(take, teacher=plan.teacher.step, shared=whole, **bound)
        plan.add(name, PART, hashed, needs, run, trains=True, optional=True)
        plan.models.append(PlannedModel(name, name, whole, SECTION, settings, part))


def hashed_part(part: Part) -> dict[str, Any]:
    """Return the settings of a part that change its layers and vectors; the pieces have a step of their own."""
    return part.model_dump(mode="json", exclude={"vocabulary"}, exclude_none=True)


def add_part_pieces(plan: Plan, part: Part) -> str:
    """Return the step of the shared student with the pieces that a part keeps, which parts with equal rules share."""
    if part.vocabulary is None:
        return SECTION
    step = f"{SECTION}-{pieces_name(part.vocabulary)}"
    if all(each.name != step for each in plan.steps):
        add_vocabulary(plan, part.vocabulary, None, SECTION, step)
        plan.models.append(PlannedModel(step, step, SECTION, SECTION, evaluated=False))
    return step


def add_shared(plan: Plan, cards: Sequence[Path]) -> None:
    """The shared student alone, which has no rows in the ledger."""
    recipe, teacher, shared = plan.recipe, plan.teacher.step, plan.recipe.shared
    assert recipe.distill
    settings, whole = shared_training(recipe.distill, shared), whole_student(shared)
    start = add_untrained(plan, cards, whole, SECTION) if whole else teacher
    hashed = {"distill": hashed_distillation(settings), "seed": recipe.seed, "start": start}
    needs = list(dict.fromkeys(["data", teacher, start, *unlabelled_steps(plan)]))
    run = partial(share, teacher=teacher, start=start, settings=settings, seed=recipe.seed)
    plan.add(SECTION, SECTION, hashed, needs, run, trains=True, optional=True)
    parent = start if whole else plan.teacher.name
    plan.models.append(PlannedModel(SECTION, SECTION, parent, SECTION, settings, evaluated=False))


def shared_training(settings: Distill, shared: Shared) -> SharedDistill:
    """Return the training of the shared student: the recipe's distillation on outputs alone."""
    own = shared.model_dump(include={"temperature", "hard_label"}, exclude_none=True)
    settings = settings.model_copy(update=own).single()  # nothing is scored between which restarts could be chosen
    return on_outputs(settings, SharedDistill, shared, between=shared.between)


def share(context: StepContext, teacher: str, start: str, settings: SharedDistill, seed: int) -> Rates:
    """Train the shared student."""
    from compress.train.shared_student import train_shared

    folders = context.inputs[teacher], context.inputs[start]
    return run_distillation(context, train_shared, folders, settings, seed, teacher, step=SECTION)


def take(context: StepContext, teacher: str, shared: str, part: Part, settings: Distill, seed: int, step: str) -> Rates:
    """Take a part out of the shared student, and distil it as a finished student."""
    from compress.train.shared_student import distill_part

    models = context.inputs[teacher], context.inputs[shared], part
    return run_distillation(context, distill_part, models, settings, seed, teacher, step=step)


def _in_effect(recipe: Recipe) -> bool:
    return bool(recipe.parts)


def _problems(recipe: Recipe) -> Iterator[Problem]:
    """Yield a distillation that is off, and steps that would have to go on from one of several parts."""
    if not recipe.parts:
        return
    listed = [each for each in recipe.students if isinstance(each, Part)]
    if len(recipe.parts) < len(listed):
        yield Problem(("student",), f"{next(each.name for each in listed if listed.count(each) > 1)} is listed twice")
    if not recipe.distill:
        yield Problem(("student",), "a part is taken from a student that is distilled, and distill is off")
    if recipe.distill and recipe.distill.phases and recipe.shared.hard_label is not None:
        yield Problem((SECTION, "hard_label"), "has no effect beside distill.phases, which have weights of their own")
    if recipe.distill and recipe.shared.temperature is not None and _has_own_temperature(recipe.distill):
        yield Problem((SECTION, "temperature"), "has no effect: distill.soft_label has a temperature of its own")
    if recipe.student is None and recipe.prune is not None:
        reason = "parts of the shared student are not pruned further: give their shapes, and their vocabulary"
        yield Problem(("prune",), reason)


def _has_own_temperature(settings: Distill) -> bool:
    soft = (phase.losses.soft_label for phase in settings.phases_or_default())
    return any(each is not None and each.temperature is not None for each in soft)


def _checks(configs: ModelConfigs) -> Iterator[Check]:
    if configs.teacher:
        yield "student", partial(_check_parts, configs)
    recipe = configs.recipe
    if recipe.distill and not recipe.student and not recipe.light_students:  # else it is checked for these
        yield from teacher_checks(configs, ("distill",), recipe.distill)
    whole = whole_student(recipe.shared)
    named = whole if whole and whole.source else recipe.teacher
    if rule := recipe.shared.vocabulary:
        yield SECTION, partial(check_vocabulary, rule, configs, named)
    for part in recipe.parts.values():
        if part.vocabulary:
            yield "student", partial(check_vocabulary, part.vocabulary, configs, named)
            yield "student", partial(check_pieces_left, part.vocabulary, recipe.shared.vocabulary, SECTION)


def _check_parts(configs: ModelConfigs) -> None:
    """Refuse families whose heads and neurons cannot be taken apart, and parts that are larger than the whole."""
    student = whole_student(configs.recipe.shared)
    config = configs.teacher
    if student and student.source:
        from compress.steps.teacher_student_compat import check_student

        check_student(student, configs)
        config = config_of(student.source, student.revision)
    if config:
        _check_separable(config)
    if (origin := known_shape(config)) is None:
        return
    whole = student_shape(origin, student) if student else origin
    for name, part in configs.recipe.parts.items():
        try:
            shape = part_shape(whole, part)
            if settings := configs.recipe.distill:
                check_made_student(settings, shape, configs.teacher)
        except CompressError as error:
            raise UsageError(f"{name}: {error.message}", hint=error.hint) from error


def _check_separable(config: Config) -> None:
    try:
        require_prunable(family_named(config["model_type"]))
    except ModelError as error:
        hint = "shared: {source: …}, a checkpoint of one of these families with the same word pieces"
        raise ModelError(error.message, hint=hint) from error


def whole_student(shared: Shared) -> Student | None:
    """Return the shared student as it is before it is trained; None where it is the teacher."""
    settings = shared.model_dump(include=OF_STUDENT, exclude_none=True)
    return Student.model_validate(settings) if settings else None


def _named_models(recipe: Recipe) -> Iterator[NamedModel]:
    if recipe.parts and recipe.shared.source:
        yield NamedModel((SECTION,), recipe.shared.source, recipe.shared.revision, "students")


def _shape(part: Part, parent: ShapeInfo | None, cards: Sequence[Path]) -> ShapeInfo | None:
    try:
        return parent and part_shape(parent, part)
    except ModelError:  # reported by the checks before a run
        return None


def _shrink(recipe: Recipe, smoke: Smoke) -> Recipe:
    """Small parts, a few updates, and as many layers as the tiny teacher has."""
    if not recipe.parts:
        return recipe
    students = tuple(_small(each) if isinstance(each, Part) else each for each in recipe.students)
    shared = recipe.shared
    changes = {
        "vocabulary": smoke_rule(shared.vocabulary),
        "factors": shared.factors and 8,
        "source": None,
        "revision": None,
        "pooling": None,
        "layers": None,
        "epochs": 1,
    }
    if recipe.distill and recipe.distill.max_steps is None:
        recipe = recipe.model_copy(update={"distill": smoke_distillation(recipe.distill, smoke)})
    return recipe.model_copy(update={"students": students, "shared": shared.model_copy(update=changes)})


def _small(part: Part) -> Part:
    return Part(**SMALL, factors=part.factors and 8, vocabulary=smoke_rule(part.vocabulary))


def _start(part: Part, parent: str, folder: Path | None) -> str:
    """`3 layers of 6 heads and 384 neurons of the shared student`."""
    layers, heads = pluralize(part.layers, "layer"), pluralize(part.heads, "head")
    factors = f"; word vectors in {part.factors} factors" if part.factors else ""
    own = "; a vocabulary of its own" if part.vocabulary else ""
    return f"{layers} of {heads} and {pluralize(part.ffn, 'neuron')} of the shared student{factors}{own}"


SHARED = ModelStep(
    title="distilling chosen parts of the shared student",
    path=(SECTION,),
    kinds={
        SECTION: StepKind(seconds=20.0, title="distilling a shared student, all its parts at once"),
        PART: StepKind(seconds=10.0),
    },
    in_effect=_in_effect,
    plan=plan_shared,
    shape=_shape,
    follows=("distill",),
    reads_unlabelled=_in_effect,
    named_models=_named_models,
    problems=_problems,
    checks=_checks,
    shrink=_shrink,
    start=_start,
    other_losses="those of distill",
    tag="distilled",
    hint="larger parts, more of shared.epochs, or texts without labels (task.data.unlabelled) bring them closer",
)
