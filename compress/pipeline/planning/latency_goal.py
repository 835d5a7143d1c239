"""Pruning to a speed-up or a time: plans the steps that measure latencies first, and checks what the goal names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from compress.environment import describe, usable_cores, versions
from compress.errors import CompressError, ModelError, Problem, UsageError, nearest
from compress.export_formats import competing_formats
from compress.model_sources import identity
from compress.pipeline.graph import Plan
from compress.pipeline.steps import latency_step
from compress.prune.latency_table import LATENCY_STEP, read_table
from compress.quantize import QUANTIZERS, chosen_methods
from compress.recipe.measure_schema import Target
from compress.recipe.schema import Recipe
from compress.runtimes import RUNTIMES
from compress.steps.distill_step import hashed_student
from compress.variants import VARIANTS


def add_latency(plan: Plan, cards: Sequence[Path]) -> None:
    """The steps that measure a latency table on this machine, and refuse a goal that is out of its reach.

    The table depends on the encoder's shape and on the lengths of the texts, not on weights: it is measured before
    anything is trained, and other trainings share it.
    """
    recipe, target = plan.recipe, latency_target(plan.recipe)
    assert recipe.prune is not None
    teacher, student = recipe.teacher, recipe.student
    hashed: dict[str, Any] = {"teacher": identity(teacher.source, teacher.revision, cards)}
    hashed["seed"] = recipe.task.data.split_seed  # which texts are typical depends on no training
    hashed["student"] = student and hashed_student(student)
    if student and student.source:
        hashed["student"]["source"] = identity(student.source, student.revision, cards)
    hashed |= {"batch": target.batch, "length": target.length}
    run = partial(latency_step.workload, recipe=recipe, target=target, cards=tuple(cards))
    plan.add("workload", "workload", hashed, ["data"], run)
    settings: dict[str, Any] = {"threads": target.threads, "batch": target.batch, "round_to": recipe.prune.round_to}
    variant = VARIANTS[latency_variant(recipe)]
    measure = partial(latency_step.latency, variant=variant.name, **settings)
    settings |= {"variant": variant.name, "version": variant.version, "machine": describe().fingerprint}
    settings |= {"versions": versions(RUNTIMES[variant.runtime].libraries)}
    plan.add(LATENCY_STEP, LATENCY_STEP, settings, ["workload"], measure)
    to, round_to = recipe.prune.to, recipe.prune.round_to
    assert to is not None
    goal = to.model_dump() | {"round_to": round_to}
    checked = partial(latency_step.check, to=to, round_to=round_to)
    plan.add("check-speedup", "check-speedup", goal, ["workload", LATENCY_STEP], checked)


def latency_target(recipe: Recipe) -> Target:
    """Return the target at which the goal is measured; raise `UsageError` where it cannot be."""
    named = recipe.prune.target if recipe.prune else None
    targets = {target.title: target for target in recipe.targets}
    if named is not None and named not in targets:
        raise UsageError(f"no target is called '{named}'{nearest(named, targets)}")
    target = targets[named] if named else recipe.targets[0]
    elsewhere = (
        "; name another target (prune.target), give latencies measured elsewhere (prune.latency_table),"
        " or shares to remove: prune: {heads: 0.5, ffn: 0.5}"
    )
    if target.device != "cpu":
        raise UsageError(f"latencies are measured on the CPU, not on {target.device}{elsewhere}")
    if target.threads > usable_cores():
        needed = f"{target.title} needs {target.threads} cores"
        raise UsageError(f"{needed}, and this machine has {usable_cores()}{elsewhere}")
    return target


def latency_variant(recipe: Recipe) -> str:
    """Return the variant in which the goal is measured: the recipe's, else INT8 where it quantizes, else fp32.

    The table and the cut build it for timing alone, so it need not be among the variants that compete.
    """
    if recipe.prune and recipe.prune.variant:
        return recipe.prune.variant
    if recipe.quantize:
        methods = chosen_methods(recipe.quantize.methods, competing_formats(recipe))
        return QUANTIZERS[next((each for each in methods if QUANTIZERS[each].graph_builder), "dynamic")].name
    if not recipe.export:
        hint = "export a format (export: onnx), name a variant (prune.variant), or give shares: prune: {heads: 0.5}"
        raise UsageError("the speed-up would be measured in onnx-fp32, and this recipe exports nothing", hint=hint)
    return "onnx-fp32"


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


def _check_variant(recipe: Recipe, path: Path) -> None:
    table, variant = read_table(path), latency_variant(recipe)
    if table.variant != variant:
        raise ModelError(f"{path} was measured in {table.variant}, and the goal is of {variant} (prune.variant)")
