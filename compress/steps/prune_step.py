"""The two steps of pruning: cut scores and removes heads and neurons, recover trains what remains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.errors import Problem, UsageError
from compress.families import family_named, require_prunable
from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import pruned_shape
from compress.prune.latency_table import LATENCY_STEP, TABLE_FILE, read_table, unreachable
from compress.prune.prune_ratios import check_sample, resolve_ratios
from compress.recipe.prune_schema import LATENCY_KEYS, Prune, PruneTo
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import Student
from compress.steps.distill_step import recover
from compress.steps.distillations import (
    distillation_checks,
    hashed_distillation,
    smoke_distillation,
    unlabelled_steps,
)
from compress.steps.model_configs import Check, Config, ModelConfigs, shape_made_of
from compress.steps.model_step import TRAINING, ModelStep, PlannedModel, Smoke, StepKind, hashed_settings
from compress.storage.file_digests import file_digest
from compress.storage.file_names import expanded_user

if TYPE_CHECKING:
    from compress.pipeline.graph import Plan
    from compress.pipeline.step_context import StepContext

SECTION = "prune"
RECOVERY = (SECTION, "recover")
LEAST_REMAINING = 0.1
"""Share of the parameters that a calibrated cut leaves at least where the goal is a speed-up."""


def add_pruned(
    plan: Plan,
    cards: Sequence[Path],
    parent: str,
    *,
    name: str = "pruned",
    cut_step: str = "cut",
    recover_step: str = "recover",
) -> None:
    """``parent`` without its least important heads and neurons, in one or several cuts.

    After each it is trained again, unless ``prune.recover`` is false.
    """
    assert plan.recipe.prune is not None
    stages = plan.recipe.prune.stages()
    for number, stage in enumerate(stages, start=1):
        suffix = f"-{number}" if number < len(stages) else ""
        steps = {"cut_step": cut_step + suffix, "recover_step": recover_step + suffix}
        _add_cut(plan, stage, parent, name + suffix, evaluated=not suffix, **steps)
        parent = name + suffix


def _add_cut(
    plan: Plan, prune: Prune, parent: str, name: str, *, cut_step: str, recover_step: str, evaluated: bool
) -> None:
    source, teacher, seed = plan.model(parent).step, plan.teacher.step, plan.recipe.seed
    is_later = plan.model(parent).section == SECTION
    run = partial(cut, teacher=teacher, parent=source, settings=prune, seed=seed, is_later=is_later)
    latency = [step.name for step in plan.steps if step.kind == LATENCY_STEP]
    needs = list(dict.fromkeys(["data", teacher, source, *latency]))
    settings: dict[str, Any] = {"prune": hashed_pruning(prune), "parent": source, "seed": seed}
    # These name how such cuts are made: results of versions that made them differently are not reused.
    if is_later:
        settings["importance"] = "scaled to that of the cut before"
    if prune.even and prune.remaining is not None:
        settings["goal"] = "counts whole heads"
    if prune.has_latency_goal:
        settings["chooses"] = "heads, neurons, whole layers"
    if prune.latency_table is not None:
        settings["latency_table"] = file_digest(expanded_user(prune.latency_table))
    plan.add(cut_step, "cut", settings, needs, run, optional=True)
    if not prune.recover:
        plan.models.append(PlannedModel(name, cut_step, parent, SECTION, None, prune, evaluated))
        return
    plan.models.append(PlannedModel(f"{name}-cut", cut_step, parent, SECTION, None, prune, evaluated=False))
    settings = {"recover": hashed_distillation(prune.recover), "pruned": cut_step, "seed": seed}
    bound: dict[str, Any] = {"teacher": teacher, "pruned": cut_step, "settings": prune.recover, "seed": seed}
    train = partial(recover, **bound, step="recover", is_cut=True)
    needs = ["data", teacher, cut_step, *unlabelled_steps(plan)]
    plan.add(recover_step, "recover", settings, needs, train, trains=True, optional=True)
    plan.models.append(PlannedModel(name, recover_step, f"{name}-cut", SECTION, prune.recover, evaluated=evaluated))


def hashed_pruning(settings: Prune) -> dict[str, Any]:
    """Return the settings of a cut that change its result; keys that earlier versions did not have only where given."""
    hashed = hashed_settings(settings)
    elsewhere, later = {"recover", "vocabulary", *LATENCY_KEYS}, {"rescale": None, "cuts": 1}.items()
    return {key: value for key, value in hashed.items() if key not in elsewhere and (key, value) not in later}


def cut(
    context: StepContext, teacher: str, parent: str, settings: Prune, seed: int, is_later: bool
) -> Mapping[str, Any] | None:
    """Score the parent model's heads and neurons and remove the least important ones."""
    from compress.prune.cut_and_recover import cut as run

    parent_folder, teacher_folder, data = context.inputs[parent], context.inputs[teacher], context.inputs["data"]
    latency = read_table(context.inputs[LATENCY_STEP] / TABLE_FILE) if LATENCY_STEP in context.inputs else None
    options: dict[str, Any] = {"latency": latency, "is_later": is_later, "console": context.console}
    speedup = run(parent_folder, teacher_folder, data, settings, seed, context.work, **options)
    return speedup.model_dump(mode="json") if speedup else None


def _in_effect(recipe: Recipe) -> bool:
    return recipe.prune is not None and recipe.prune.removes_units


def _recovers(recipe: Recipe) -> bool:
    return _in_effect(recipe) and recipe.prune is not None and bool(recipe.prune.recover)


def _problems(recipe: Recipe) -> Iterator[Problem]:
    """Yield settings of cuts where word pieces alone are removed."""
    prune = recipe.prune
    if prune is None or prune.removes_units:
        return
    for name, default in Prune(vocabulary=prune.vocabulary):
        if getattr(prune, name) not in (default, False):
            reason = "has no effect: word pieces alone are removed (vocabulary); heads, ffn and to remove more"
            yield Problem((SECTION, name), reason)


def _checks(configs: ModelConfigs) -> Iterator[Check]:
    prune = configs.recipe.prune
    assert prune is not None
    if configs.origin:
        yield SECTION, partial(_check_pruning, prune, configs.origin, configs.recipe.student)
    if prune.recover:
        yield from distillation_checks(configs, RECOVERY, prune.recover)


def _check_pruning(prune: Prune, origin: Config, student: Student | None) -> None:
    """Refuse families that cannot be pruned, and goals that would leave a layer without heads or neurons."""
    require_prunable(family_named(origin["model_type"]))
    if shape := shape_made_of(origin, student):
        _check_latency_table(prune, shape) if prune.has_latency_goal else resolve_ratios(shape, prune)


def _check_latency_table(prune: Prune, shape: ShapeInfo) -> None:
    """Refuse a table from elsewhere of another shape than the model to prune has, and a goal out of its reach."""
    if prune.latency_table is None or prune.to is None:
        return
    table = read_table(expanded_user(prune.latency_table))
    if reason := table.mismatch(shape):
        raise UsageError(f"latency_table: {reason}")
    if reason := unreachable(table, shape, prune.to, prune.round_to):
        raise UsageError(f"to: {reason}")


def _shrink(recipe: Recipe, smoke: Smoke) -> Recipe:
    """Few batches; a share instead of a speed-up, which models so small cannot reach."""
    if (prune := recipe.prune) is None:
        return recipe
    changes: dict[str, Any] = {"batches": 2, "recover": prune.recover and smoke_distillation(prune.recover, smoke)}
    shares = {"to": PruneTo(parameters=0.7), **dict.fromkeys(LATENCY_KEYS)} if prune.has_latency_goal else {}
    return recipe.model_copy(update={SECTION: prune.model_copy(update=changes | shares)})


def _untimed(recipe: Recipe) -> Recipe:
    """A cut that removes about as much as one to its goal of speed-up."""
    if recipe.prune is None or recipe.prune.to is None or not recipe.prune.has_latency_goal:
        return recipe
    goal = PruneTo(parameters=max(LEAST_REMAINING, 1.0 / recipe.prune.to.expected_speedup))
    changes = {"to": goal, **dict.fromkeys(LATENCY_KEYS)}
    return recipe.model_copy(update={SECTION: recipe.prune.model_copy(update=changes)})


PRUNE = ModelStep(
    title="pruning",
    path=(SECTION,),
    training=RECOVERY,
    kinds={
        "cut": StepKind({**TRAINING, "torch_pruning": "train"}, version=2, seconds=10.0, gradient_rows=2_000),
        "recover": StepKind(version=2),
    },
    in_effect=_in_effect,
    plan=add_pruned,
    shape=lambda settings, parent, cards: parent and pruned_shape(parent, settings),
    reads_unlabelled=_recovers,
    check_rows=check_sample,
    problems=_problems,
    checks=_checks,
    shrink=_shrink,
    untimed=_untimed,
    start=lambda settings, parent, folder: f"the {parent}, pruned",
    tag="pruned",
)
