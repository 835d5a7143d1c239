"""From a resolved recipe to the list of steps, each with its fingerprint: nothing runs, nothing heavy is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from compress.data.loading.row_sources import check_columns
from compress.environment import cuda_devices
from compress.pipeline.graph import Plan
from compress.pipeline.planning import data_steps, result_steps
from compress.pipeline.planning.latency_goal import add_latency
from compress.pipeline.planning.variant_steps import add_variants
from compress.recipe.schema import Recipe
from compress.steps import steps_of
from compress.steps.model_step import ModelStep

ModelPlanner = Callable[[Plan, Sequence[Path]], None]
"""Adds one model and its step to a plan; the second argument are folders of cards."""


def make_plan(
    recipe: Recipe,
    cards: Sequence[Path] = (),
    *,
    limits: bool = True,
    left_out: Mapping[str, str] | None = None,
    models: Sequence[ModelPlanner] | None = None,
) -> Plan:
    """Lay out the steps of a resolved recipe.

    Args:
        recipe: with every name resolved.
        cards: folders of cards besides the shipped ones.
        limits: measure the machine's own limits too; a smoke run does without.
        left_out: a warning for each format that `export: all` left out, by format.
        models: plans each model step; by default those of the recipe's sections.
    """
    plan = Plan(recipe, left_out=left_out or {})
    check_columns(recipe.task)
    data_steps.add_data(plan)
    data_steps.add_unlabelled(plan)
    data_steps.add_slices(plan)
    for add_model in default_models(recipe) if models is None else models:
        add_model(plan, cards)
    absent = [target.title for target in recipe.targets if target.device == "cuda"]
    if absent and not cuda_devices():
        plan.missing_targets = dict.fromkeys(absent, "this machine has no CUDA device")
    for model in plan.evaluated:
        add_variants(plan, model)
    result_steps.add_results(plan, limits)
    return plan


def default_models(recipe: Recipe) -> list[ModelPlanner]:
    """One planner for each model step of a recipe; latencies are measured before anything is trained."""
    measured_here = recipe.prune and recipe.prune.has_latency_goal and recipe.prune.latency_table is None
    return [*([add_latency] if measured_here else []), *(partial(_add_next, step=step) for step in steps_of(recipe))]


def _add_next(plan: Plan, cards: Sequence[Path], step: ModelStep) -> None:
    step.plan(plan, cards, plan.models[-1].name if plan.models else "")
