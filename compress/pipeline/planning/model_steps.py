"""Plans the steps that make models: finetune → distill → cut → recover, or any other list of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from compress.data.splits.unlabelled_texts import UNLABELLED
from compress.model_sources import folder_identity, identity
from compress.pipeline.fingerprint import hashed_pruning, hashed_student, hashed_training
from compress.pipeline.graph import QAT, VOCABULARY, Plan, PlannedModel
from compress.pipeline.planning.latency_goal import add_latency
from compress.pipeline.steps import training_steps
from compress.pipeline.steps.latency_step import LATENCY_STEP
from compress.recipe.distill_schema import Distill, QuantizationAware
from compress.recipe.prune_schema import Prune
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import Student, Vocabulary
from compress.storage.file_digests import file_digest

ModelPlanner = Callable[[Plan, Sequence[Path]], None]
"""Adds one model and its step to a plan; the second argument are folders of cards."""


def default_models(recipe: Recipe) -> list[ModelPlanner]:
    """One planner for each model section of a recipe; latencies are measured before anything is trained."""
    measured_here = recipe.prune and recipe.prune.has_latency_goal and recipe.prune.latency_table is None
    planners: list[ModelPlanner] = [*([add_latency] if measured_here else []), add_teacher]
    if recipe.student:
        planners.append(partial(add_student, student=recipe.student, distill=recipe.distill))
    last = "student" if recipe.student else "teacher"
    if recipe.prune and recipe.prune.removes_units:
        planners.append(partial(add_pruned, prune=recipe.prune, parent=last))
        last = "pruned"
    if recipe.prune and recipe.prune.vocabulary:
        planners.append(partial(add_trimmed, rule=recipe.prune.vocabulary, parent=last))
        last = "trimmed"
    if recipe.quantize and recipe.quantize.training:
        planners.append(partial(add_quantization_aware, settings=recipe.quantize.training, parent=last))
    return planners


def add_teacher(plan: Plan, cards: Sequence[Path]) -> None:
    """The model that the recipe names, fine-tuned or taken as it is."""
    recipe = plan.recipe
    settings: dict[str, Any] = {
        "teacher": identity(recipe.teacher.source, recipe.teacher.revision, cards),
        "finetune": recipe.finetune and hashed_training(recipe.finetune),
        "seed": recipe.seed,
    }
    run = partial(training_steps.finetune, recipe=recipe, cards=tuple(cards))
    step = plan.add("finetune", "finetune", settings, ["data"], run, trains=True)
    plan.models.append(PlannedModel("teacher", step, None, "finetune", recipe.finetune or None))


def add_student(
    plan: Plan,
    cards: Sequence[Path],
    *,
    student: Student,
    distill: Distill | Literal[False],
    name: str = "student",
    step: str = "distill",
) -> None:
    """A smaller model that learns from the teacher; one with a vocabulary of its own gets that before it learns."""
    if student.vocabulary is None:
        _add_built(plan, cards, student, distill, step)
    else:
        step = _add_own_vocabulary(plan, cards, student, student.vocabulary, distill, name, step)
    plan.models.append(PlannedModel(name, step, plan.teacher.name, "distill", distill or None, student))


def _add_built(
    plan: Plan, cards: Sequence[Path], student: Student, distill: Distill | Literal[False], step: str
) -> None:
    """The step that makes a student of the teacher's layers, and trains it unless ``distill`` is false."""
    shape = hashed_student(student)
    if student.factors:
        shape["factors_by"] = "piece counts"
    if student.source:
        shape["source"] = identity(student.source, student.revision, cards)
    settings = {"student": shape, "distill": distill and _hashed_distillation(distill), "seed": plan.recipe.seed}
    teacher = plan.teacher.step
    run = partial(training_steps.distill, teacher=teacher, student=student, settings=distill, seed=plan.recipe.seed)
    needs = ["data", teacher, *(_unlabelled(plan) if distill else ())]
    plan.add(step, "distill", settings, needs, run, trains=True, optional=True)


def _add_own_vocabulary(
    plan: Plan,
    cards: Sequence[Path],
    student: Student,
    rule: Vocabulary,
    distill: Distill | Literal[False],
    name: str,
    step: str,
) -> str:
    """The steps that make an untrained student, remove pieces from it and train it; returns the last one's name."""
    built, start, seed = f"build-{name}", f"{name}-vocabulary", plan.recipe.seed
    _add_built(plan, cards, student, False, built)
    plan.models.append(PlannedModel(built, built, plan.teacher.name, "distill", None, student, evaluated=False))
    _add_vocabulary(plan, rule, None, built, start)
    if not distill:
        return start
    plan.models.append(PlannedModel(start, start, built, "distill", evaluated=False))
    teacher = plan.teacher.step
    further: dict[str, Any] = {"teacher": teacher, "pruned": start, "settings": distill, "seed": seed, "step": step}
    settings = {"distill": _hashed_distillation(distill), "start": start, "seed": seed}
    needs = ["data", teacher, start, *_unlabelled(plan)]
    return plan.add(
        step, "distill", settings, needs, partial(training_steps.recover, **further), trains=True, optional=True
    )


def add_pruned(
    plan: Plan,
    cards: Sequence[Path],
    *,
    prune: Prune,
    parent: str,
    name: str = "pruned",
    cut_step: str = "cut",
    recover_step: str = "recover",
) -> None:
    """``parent`` without its least important heads and neurons, in one or several cuts.

    After each it is trained again, unless ``prune.recover`` is false.
    """
    stages = prune.stages()
    for number, stage in enumerate(stages, start=1):
        suffix = f"-{number}" if number < len(stages) else ""
        steps = {"cut_step": cut_step + suffix, "recover_step": recover_step + suffix}
        _add_cut(plan, stage, parent, name + suffix, evaluated=not suffix, **steps)
        parent = name + suffix


def _add_cut(
    plan: Plan, prune: Prune, parent: str, name: str, *, cut_step: str, recover_step: str, evaluated: bool
) -> None:
    source, teacher, seed = plan.model(parent).step, plan.teacher.step, plan.recipe.seed
    is_later = plan.model(parent).section == "prune"
    cut = partial(training_steps.cut, teacher=teacher, parent=source, settings=prune, seed=seed, is_later=is_later)
    latency = [step.name for step in plan.steps if step.kind == LATENCY_STEP]
    needs = list(dict.fromkeys(["data", teacher, source, *latency]))
    settings: dict[str, Any] = {"prune": hashed_pruning(prune), "parent": source, "seed": seed}
    # These two name how such cuts are made: results of versions that made them differently are not reused.
    if is_later:
        settings["importance"] = "scaled to that of the cut before"
    if prune.has_latency_goal:
        settings["chooses"] = "heads, neurons, whole layers"
    if prune.latency_table is not None:
        settings["latency_table"] = file_digest(Path(prune.latency_table).expanduser())
    plan.add(cut_step, "cut", settings, needs, cut, optional=True)
    if not prune.recover:
        plan.models.append(PlannedModel(name, cut_step, parent, "prune", None, prune, evaluated))
        return
    plan.models.append(PlannedModel(f"{name}-cut", cut_step, parent, "prune", None, prune, evaluated=False))
    settings = {"recover": _hashed_distillation(prune.recover), "pruned": cut_step, "seed": seed}
    recover = partial(training_steps.recover, teacher=teacher, pruned=cut_step, settings=prune.recover, seed=seed)
    needs = ["data", teacher, cut_step, *_unlabelled(plan)]
    plan.add(recover_step, "recover", settings, needs, recover, trains=True, optional=True)
    plan.models.append(PlannedModel(name, recover_step, f"{name}-cut", "prune", prune.recover, evaluated=evaluated))


def add_trimmed(
    plan: Plan,
    cards: Sequence[Path],
    *,
    rule: Vocabulary,
    parent: str,
    name: str = "trimmed",
    step: str = VOCABULARY,
) -> None:
    """``parent`` without the word pieces that its texts do not use, and positions beyond the longest text."""
    recipe, source = plan.recipe, plan.model(parent).step
    lengths = [
        *(target.length for target in recipe.targets),
        *(recipe.measure.grid.length if recipe.measure.grid else ()),
    ]
    longest = max([recipe.task.max_length, *(length for length in lengths if isinstance(length, int))])
    _add_vocabulary(plan, rule, longest, source, step)
    plan.models.append(PlannedModel(name, step, parent, VOCABULARY))


def _add_vocabulary(plan: Plan, rule: Vocabulary, longest: int | None, source: str, step: str) -> str:
    """The step that removes pieces from what ``source`` makes, and positions where ``longest`` is given."""
    hashed = rule if rule == "seen" else dict(rule)
    settings = {"vocabulary": hashed, "longest": longest, "parent": source}
    run = partial(training_steps.vocabulary, parent=source, rule=rule, longest=longest)
    return plan.add(step, VOCABULARY, settings, ["data", source, *_unlabelled(plan)], run, optional=True)


def add_quantization_aware(
    plan: Plan, cards: Sequence[Path], *, settings: QuantizationAware, parent: str, name: str = QAT, step: str = QAT
) -> None:
    """``parent``, trained while it computes as in INT8 to repeat its own outputs in full precision."""
    source, seed = plan.model(parent).step, plan.recipe.seed
    hashed = {"training": _hashed_distillation(settings), "parent": source, "seed": seed}
    run = partial(training_steps.quantization_aware, parent=source, settings=settings, seed=seed)
    plan.add(step, QAT, hashed, ["data", source, *_unlabelled(plan)], run, trains=True, optional=True)
    plan.models.append(PlannedModel(name, step, parent, "quantize", settings, teacher=parent))


def _unlabelled(plan: Plan) -> list[str]:
    return [step.name for step in plan.steps if step.kind == UNLABELLED]


def _hashed_distillation(settings: Distill) -> dict[str, Any]:
    """The settings that change the result; other models are identified by their contents, not by their path."""
    hashed = hashed_training(settings)
    for teacher, further in zip(hashed["teachers"], settings.teachers, strict=True):
        teacher["source"] = identity(further.source, further.revision)
    if settings.augment is not None:
        hashed["augment"]["model"] = identity(settings.augment.model, None)
    if settings.cross_encoder is not None:
        hashed["cross_encoder"] = folder_identity(settings.cross_encoder)
    return hashed
