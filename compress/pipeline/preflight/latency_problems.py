"""Checks of a goal of speed-up: its target and variant, and a latency table that was measured elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from compress.errors import CompressError, ModelError, Problem, UsageError
from compress.model_info import ShapeInfo
from compress.pipeline.planning.latency_goal import latency_target, latency_variant
from compress.prune.latency_table import read_table, unreachable
from compress.recipe.prune_schema import Prune
from compress.recipe.schema import Recipe


def goal_problems(recipe: Recipe) -> Iterator[Problem]:
    """Yield what the recipe's goal of speed-up names and does not exist."""
    if recipe.prune is None or not recipe.prune.has_latency_goal:
        return
    checks: dict[str, Callable[[], object]] = {"variant": partial(latency_variant, recipe)}
    if recipe.prune.latency_table is None:
        checks["target"] = partial(latency_target, recipe)
    else:
        checks["latency_table"] = partial(_check_variant, recipe, Path(recipe.prune.latency_table).expanduser())
    for key, check in checks.items():
        try:
            check()
        except CompressError as error:
            yield Problem(("prune", key), error.full_message)


def check_latency_table(prune: Prune, shape: ShapeInfo) -> None:
    """Refuse a table from elsewhere of another shape than the model to prune has, and a goal out of its reach."""
    if prune.latency_table is None or prune.to is None:
        return
    table = read_table(Path(prune.latency_table).expanduser())
    if reason := table.mismatch(shape):
        raise UsageError(f"latency_table: {reason}")
    if reason := unreachable(table, shape, prune.to, prune.round_to):
        raise UsageError(f"to: {reason}")


def _check_variant(recipe: Recipe, path: Path) -> None:
    table, variant = read_table(path), latency_variant(recipe)
    if table.variant != variant:
        raise ModelError(f"{path} was measured in {table.variant}, and the goal is of {variant} (prune.variant)")
