"""From a resolved recipe to the list of steps, each with its fingerprint: nothing runs, nothing heavy is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from compress.data.loading.row_sources import check_columns
from compress.environment import cuda_devices
from compress.pipeline.graph import Plan
from compress.pipeline.planning.data_steps import add_data, add_slices, add_unlabelled
from compress.pipeline.planning.model_steps import ModelPlanner, default_models
from compress.pipeline.planning.result_steps import (
    add_baseline,
    add_measure,
    add_package,
    add_publish,
    add_quality,
    add_report,
    add_select,
)
from compress.pipeline.planning.variant_steps import add_variants
from compress.recipe.schema import Recipe


def make_plan(
    recipe: Recipe,
    cards: Sequence[Path] = (),
    *,
    limits: bool = True,
    models: Sequence[ModelPlanner] | None = None,
) -> Plan:
    """Lay out the steps of a resolved recipe.

    Args:
        recipe: with every name resolved.
        cards: folders of cards besides the shipped ones.
        limits: measure the machine's own limits too; a smoke run does without.
        models: plans each model step; by default those of the recipe's sections.
    """
    plan = Plan(recipe)
    check_columns(recipe.task)
    add_data(plan)
    add_unlabelled(plan)
    add_slices(plan)
    for add_model in default_models(recipe) if models is None else models:
        add_model(plan, cards)
    _note_missing_targets(plan)
    for model in plan.evaluated:
        add_variants(plan, model)
    add_baseline(plan)
    add_measure(plan, limits)
    for add_step in (add_quality, add_select, add_package, add_report, add_publish):
        add_step(plan)
    return plan


def _note_missing_targets(plan: Plan) -> None:
    absent = [target.title for target in plan.recipe.targets if target.device == "cuda"]
    if absent and not cuda_devices():
        plan.missing_targets = dict.fromkeys(absent, "this machine has no CUDA device")
