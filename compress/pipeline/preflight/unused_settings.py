"""Finds recipe settings that have no effect."""

from __future__ import annotations

from collections.abc import Iterator

from compress.errors import Problem, group_by_reason
from compress.export_formats import competing_formats
from compress.losses import TASK_LOSSES
from compress.quantize import chosen_methods
from compress.recipe.schema import Recipe
from compress.recipe.training_schema import Training
from compress.recipe.yaml_lines import KeyPath
from compress.runtime_releases import why_not_in_all
from compress.steps import STEPS, distillations, trainings
from compress.steps.distillations import distillation_problems
from compress.steps.finetune_step import HEADLESS
from compress.tasks import KINDS
from compress.variants import variants_for


def unused_settings(recipe: Recipe) -> Iterator[Problem]:
    """Yield every setting of quantization and of model steps that has no effect; defaults are never reported."""
    yield from _quantization(recipe)
    yield from _runs_nowhere(recipe)
    for step in STEPS.values():
        yield from step.problems(recipe)
    for path, training in trainings(recipe):
        yield from _unfit_for_the_kind(recipe.task.kind, path, training)
    for path, settings in distillations(recipe):
        yield from distillation_problems(recipe.task.kind, path, settings)


def _unfit_for_the_kind(kind: str, path: KeyPath, training: Training) -> Iterator[Problem]:
    """Yield weights of classes where there are none, and a head that is trained first where there is none."""
    if training.class_weights and not TASK_LOSSES[KINDS[kind].problem].weighted:
        readers = ", ".join(name for name, each in KINDS.items() if TASK_LOSSES[each.problem].weighted)
        yield Problem((*path, "class_weights"), f"has no effect for {kind}; it is for {readers}")
    if training.unfreeze and KINDS[kind].head == HEADLESS:
        yield Problem((*path, "unfreeze"), f"begins with the head alone, and an embedding ({kind}) has none")


def _runs_nowhere(recipe: Recipe) -> Iterator[Problem]:
    """Yield `runs_in` where none of the variants that compete runs there, which is known before they are built."""
    formats, devices = competing_formats(recipe), [target.device for target in recipe.targets]
    methods = chosen_methods(recipe.quantize.methods, formats) if recipe.quantize else ()
    reasons: dict[str, str] = {}
    for each in variants_for(formats, methods, devices, also=recipe.variants) if recipe.runs_in else ():
        stated = each.libraries.get("onnxruntime")
        reasons[each.name] = why_not_in_all(recipe.runs_in, each.format, each.operators, stated) or ""
    if reasons and all(reasons.values()):
        listing = "; ".join(f"{names}: {reason}" for reason, names in group_by_reason(reasons.items()).items())
        yield Problem(("runs_in",), f"no variant of this recipe runs there ({listing}); add onnx to export")


def _quantization(recipe: Recipe) -> Iterator[Problem]:
    """Yield quantization without a format for it."""
    if recipe.quantize and not chosen_methods(recipe.quantize.methods, competing_formats(recipe)):
        yield Problem(("quantize",), "has no effect: no format that competes has a method for INT8; add onnx to export")
