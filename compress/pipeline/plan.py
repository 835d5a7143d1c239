"""From a resolved recipe to the list of steps, each with its fingerprint: nothing runs, nothing heavy is loaded.

Model steps make model folders (finetune → distill → prune). Every model then gives one step for each variant that must
be built, and one score for each way a variant is used; measuring and the report come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from compress.data.contents import contents_digest
from compress.data.sources import check_columns
from compress.environment import cuda_devices, describe, versions
from compress.pipeline import steps
from compress.pipeline.fingerprint import effective
from compress.pipeline.graph import Competitor, Plan
from compress.pipeline.portable import portable
from compress.recipe.schema import Recipe, Target
from compress.sources import identity
from compress.variants import Variant, variants_for

SCORING_BATCH = 32
"""Rows scored together where a variant's answer does not depend on what shares its batch."""

RUNTIME_LIBRARIES = ("torch", "transformers", "onnxruntime", "onnxruntime-gpu", "tokenizers", "numpy")
"""Their versions are part of a measurement."""


def make_plan(recipe: Recipe, cards: Sequence[Path] = ()) -> Plan:
    """Lay out the steps of a resolved recipe."""
    plan = Plan(recipe)
    check_columns(recipe.task)
    _add_data(plan)
    models = _add_models(plan, cards)
    _note_missing_targets(plan)
    for model, step in models.items():
        _add_variants(plan, model, step)
    plan.add("floor", "floor", {"seed": recipe.seed}, ["data"], partial(steps.floor, seed=recipe.seed), optional=True)
    _add_measure(plan)
    _add_report(plan)
    return plan


def _add_data(plan: Plan) -> None:
    recipe = plan.recipe
    task = effective(recipe.task)
    data = {key: value for key, value in task.pop("data").items() if key not in ("train", "select", "test")}
    data["contents"] = contents_digest(recipe.task.data)
    settings = {"task": task, "data": data, "seed": recipe.seed}
    plan.add("data", "data", settings, [], partial(steps.data, task=recipe.task, seed=recipe.seed))


def _add_models(plan: Plan, cards: Sequence[Path]) -> dict[str, str]:
    """The model steps; returns model → step."""
    recipe = plan.recipe
    seed = recipe.seed
    source = identity(recipe.teacher.source, recipe.teacher.revision, cards)
    settings: dict[str, Any] = {
        "teacher": source,
        "finetune": recipe.finetune and effective(recipe.finetune),
        "seed": seed,
    }
    run = partial(steps.finetune, teacher=recipe.teacher, settings=recipe.finetune, seed=seed, cards=tuple(cards))
    models = {"teacher": plan.add("finetune", "finetune", settings, ["data"], run, trains=True)}
    if recipe.student:
        student = effective(recipe.student)
        if recipe.student.source:
            student["source"] = identity(recipe.student.source, recipe.student.revision, cards)
        settings = {"student": student, "distill": recipe.distill and effective(recipe.distill), "seed": seed}
        run = partial(steps.distill, student=recipe.student, settings=recipe.distill, seed=seed)
        models["student"] = plan.add("distill", "distill", settings, ["data", "finetune"], run, trains=True)
    if recipe.prune:
        parent = models.get("student", models["teacher"])
        needs = list(dict.fromkeys(["data", "finetune", parent]))
        run = partial(steps.prune, parent=parent, settings=recipe.prune, seed=seed)
        settings = {"prune": effective(recipe.prune), "parent": parent, "seed": seed}
        models["pruned"] = plan.add("prune", "prune", settings, needs, run, trains=True)
    return models


def _note_missing_targets(plan: Plan) -> None:
    if _uses_cuda(plan.recipe.targets) and not cuda_devices():
        absent = [target.title for target in plan.recipe.targets if target.device == "cuda"]
        plan.missing_targets = dict.fromkeys(absent, "this machine has no CUDA device")


def _uses_cuda(targets: Sequence[Target]) -> bool:
    return any(target.device == "cuda" for target in targets)


def _add_variants(plan: Plan, model: str, step: str) -> None:
    """The steps that build, and then score, every variant of one model."""
    recipe = plan.recipe
    present = [target for target in recipe.targets if target.title not in plan.missing_targets]
    devices = list(dict.fromkeys(target.device for target in recipe.targets))
    places: dict[str, str] = {}
    for variant in variants_for(recipe.export, recipe.quantize.method if recipe.quantize else None, devices):
        places[variant.name] = _add_build(plan, model, step, variant, places)
        scores = {
            target.title: _add_score(plan, model, variant, places[variant.name], target)
            for target in present
            if variant.runs_on(target.device)
        }
        plan.competitors.append(Competitor(model, variant, places[variant.name], scores))


def _add_build(plan: Plan, model: str, step: str, variant: Variant, places: Mapping[str, str]) -> str:
    """The step that builds ``variant``, or the model's own step where nothing has to be built."""
    if variant.build is None:
        return step
    kind = "quantize" if variant.method else "export"
    parent = places[variant.needs] if variant.needs else step
    run = partial(steps.build, parent=parent, variant=variant)
    return plan.add(
        f"{kind}-{model}-{variant.name}", kind, {"variant": variant.name}, ["data", parent], run, optional=True
    )


def _add_score(plan: Plan, model: str, variant: Variant, place: str, target: Target) -> str:
    """The step that scores a variant as ``target`` uses it; targets that use it alike share one."""
    batch = target.batch if variant.batch_sensitive else SCORING_BATCH
    name = f"score-{model}-{variant.name}-{target.device}-b{batch}"
    if all(step.name != name for step in plan.steps):
        settings = {"variant": variant.name, "device": target.device, "batch": batch}
        run = partial(steps.score, parent=place, variant=variant, device=target.device, batch=batch)
        plan.add(name, "score", settings, ["data", place], run, optional=True)
    return name


def _add_measure(plan: Plan) -> None:
    recipe = plan.recipe
    present = [target for target in recipe.targets if target.title not in plan.missing_targets]
    settings = {
        "targets": [target.model_dump(mode="json") for target in present],
        "measure": recipe.measure.model_dump(mode="json"),
        "competitors": [competitor.key for competitor in plan.competitors],
        "machine": describe().fingerprint,
        "accelerators": [gpu.name for gpu in cuda_devices()] if _uses_cuda(present) else [],
        "versions": versions(RUNTIME_LIBRARIES),
    }
    needs = list(dict.fromkeys(["data", *(competitor.step for competitor in plan.competitors)]))
    run = partial(steps.measure, targets=present, settings=recipe.measure, competitors=tuple(plan.competitors))
    plan.add("measure", "measure", settings, needs, run, optional=True)


def _add_report(plan: Plan) -> None:
    recipe = plan.recipe
    settings = {
        "recipe": portable(recipe),
        "missing": dict(plan.missing_targets),
    }
    needs = [step.name for step in plan.steps]
    plan.add("report", "report", settings, needs, partial(steps.report, plan=plan))
