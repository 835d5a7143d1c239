"""The step that trains a model once more while it computes as in INT8."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from compress.errors import Problem
from compress.quantize import chosen_methods
from compress.recipe.distill_schema import QuantizationAware
from compress.recipe.schema import Recipe
from compress.steps.distillations import (
    Rates,
    distillation_checks,
    hashed_distillation,
    run_distillation,
    smoke_distillation,
    unlabelled_steps,
)
from compress.steps.model_configs import Check, ModelConfigs
from compress.steps.model_step import ModelStep, PlannedModel, Smoke, StepKind, settings_at, with_settings
from compress.variants import competing_formats

if TYPE_CHECKING:
    from compress.pipeline.graph import Plan
    from compress.pipeline.step_context import StepContext

PATH = ("quantize", "training")
KIND = "qat"
IMITATED = "dynamic"
"""The quantizer whose arithmetic the training imitates."""


def add_quantization_aware(
    plan: Plan, cards: Sequence[Path], parent: str, *, name: str = KIND, step: str = KIND
) -> None:
    """``parent``, trained while it computes as in INT8 to repeat its own outputs in full precision."""
    source, seed, settings = plan.model(parent).step, plan.recipe.seed, settings_at(plan.recipe, PATH)
    hashed = {"training": hashed_distillation(settings), "parent": source, "seed": seed}
    run = partial(quantization_aware, parent=source, settings=settings, seed=seed)
    plan.add(step, KIND, hashed, ["data", source, *unlabelled_steps(plan)], run, trains=True, optional=True)
    plan.models.append(PlannedModel(name, step, parent, "quantize", settings, teacher=parent))


def quantization_aware(context: StepContext, parent: str, settings: QuantizationAware, seed: int) -> Rates:
    """Train the parent model while it computes as in INT8."""
    from compress.quantize.quantization_aware import quantization_aware as train

    return run_distillation(context, train, (context.inputs[parent],), settings, seed, parent)


def _in_effect(recipe: Recipe) -> bool:
    return bool(settings_at(recipe, PATH))


def _problems(recipe: Recipe) -> Iterator[Problem]:
    """Yield a training for quantization by a method that is not used."""
    if not (recipe.quantize and recipe.quantize.training):
        return
    methods = chosen_methods(recipe.quantize.methods, competing_formats(recipe))
    if IMITATED not in methods and (methods or recipe.light_students):
        named = ", ".join(methods or recipe.quantize.methods)
        reason = f"imitates the method {IMITATED}, and methods are {named}; add {IMITATED} to them"
        yield Problem(PATH, reason)


def _checks(configs: ModelConfigs) -> Iterator[Check]:
    return distillation_checks(configs, PATH, settings_at(configs.recipe, PATH), own_teacher=True)


def _shrink(recipe: Recipe, smoke: Smoke) -> Recipe:
    settings = settings_at(recipe, PATH)
    return with_settings(recipe, PATH, smoke_distillation(settings, smoke)) if settings else recipe


QUANTIZATION_AWARE = ModelStep(
    title="training for INT8",
    path=PATH,
    training=PATH,
    kinds={KIND: StepKind()},
    in_effect=_in_effect,
    plan=add_quantization_aware,
    reads_unlabelled=_in_effect,
    problems=_problems,
    checks=_checks,
    shrink=_shrink,
    start=lambda settings, parent, folder: f"the {parent} model, trained while it computes as in INT8",
    tag="quantization-aware-training",
)
