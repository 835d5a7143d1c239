"""Plans the steps over all models and variants: baseline, timing, scores, selection, packaging, report, publishing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from compress.environment import cuda_devices, cuda_version, describe, driver_version, versions
from compress.formats import RUNTIMES
from compress.pipeline.graph import Plan
from compress.pipeline.steps import (
    measure_step,
    package_step,
    publish_step,
    quality_step,
    report_step,
    scoring_steps,
    select_step,
)
from compress.pipeline.steps.select_step import rules_of
from compress.pipeline.strip_paths import recipe_without_paths
from compress.recipe.measure_schema import Measure

SHARED_LIBRARIES = ("tokenizers", "numpy")
"""Their versions are part of every measurement."""


def add_baseline(plan: Plan) -> None:
    """The step that scores something simple for comparison: a bag of words, where the task has one."""
    run = partial(scoring_steps.floor, seed=plan.recipe.seed)
    plan.add("floor", "floor", {"seed": plan.recipe.seed}, ["data"], run, optional=True)


def add_measure(plan: Plan, limits: bool) -> None:
    """The step that times every variant; with ``limits``, the machine's own limits too."""
    recipe, targets = plan.recipe, plan.present_targets
    libraries = {name for entry in plan.variants for name in RUNTIMES[entry.variant.runtime].libraries}
    settings: dict[str, Any] = {
        "targets": [target.model_dump(mode="json") for target in targets],
        "measure": timing_settings(recipe.measure),
        "variants": [entry.key for entry in plan.variants],
        "machine": describe().fingerprint,
        "accelerators": _accelerators() if any(target.device == "cuda" for target in targets) else {},
        "limits": limits,
        "seed": recipe.seed,
        "versions": versions(sorted({*libraries, *SHARED_LIBRARIES})),
    }
    run = partial(
        measure_step.measure,
        targets=targets,
        settings=recipe.measure,
        variants=tuple(plan.variants),
        seed=recipe.seed,
        limits=limits,
    )
    needs = list(dict.fromkeys(["data", *(entry.step for entry in plan.variants)]))
    plan.add("measure", "measure", settings, needs, run, optional=True, tolerant=True)


def timing_settings(settings: Measure) -> dict[str, Any]:
    """The settings that change the result of the measuring step.

    Perturbed texts are scored in a step of their own, and a budget takes precedence over rounds and processes.
    """
    unused = {"robustness"} | ({"rounds", "processes"} if settings.budget else set())
    return settings.model_dump(mode="json", exclude=unused)


def add_quality(plan: Plan) -> None:
    """The step that turns the outputs of all rows into scores."""
    settings = {
        "bootstrap": plan.recipe.measure.bootstrap,
        "seed": plan.recipe.seed,
        "rows": {entry.key: {"scores": entry.scores, "perturbs": entry.perturbs} for entry in plan.variants},
    }
    kinds = ("data", "slices", "score", "perturb", "floor")
    needs = [step.name for step in plan.steps if step.kind in kinds]
    plan.add("quality", "quality", settings, needs, partial(quality_step.quality, plan=plan), tolerant=True)


def add_select(plan: Plan) -> None:
    """The step that applies the gate and chooses winners."""
    settings = {
        "rules": rules_of(plan.recipe).model_dump(mode="json"),
        "targets": [[target.title, target.device] for target in plan.recipe.targets],
        "missing": dict(plan.missing_targets),
        "rows": [entry.key for entry in plan.variants],
    }
    needs = ["quality", "measure", *dict.fromkeys(entry.step for entry in plan.variants)]
    plan.add("select", "select", settings, needs, partial(select_step.select, plan=plan), tolerant=True)


def add_package(plan: Plan) -> None:
    """The step that collects what is deployed: the winners and formats that only winners get."""
    settings = {"recipe": recipe_without_paths(plan.recipe)}
    needs = ["select", *dict.fromkeys(entry.step for entry in plan.variants)]
    plan.add("package", "package", settings, needs, partial(package_step.package, plan=plan), tolerant=True)


def add_report(plan: Plan) -> None:
    """The step that gathers the results of all others."""
    settings = {"recipe": recipe_without_paths(plan.recipe), "missing": dict(plan.missing_targets)}
    needs = [step.name for step in plan.steps]
    plan.add("report", "report", settings, needs, partial(report_step.report, plan=plan), tolerant=True)


def add_publish(plan: Plan) -> None:
    """The step that publishes the winners, where the recipe says so."""
    publish = plan.recipe.publish
    if publish:
        settings = {"to": str(Path(publish.to).expanduser().absolute()), "name": publish.name or plan.recipe.name}
        run = partial(publish_step.publish, settings=publish)
        in_effect = partial(publish_step.is_in_zoo, settings=publish)
        plan.add("publish", "publish", settings, ["package", "report"], run, optional=True, in_effect=in_effect)


def _accelerators() -> dict[str, Any]:
    """The devices and what drives them: other drivers and libraries have other kernels."""
    return {"names": [gpu.name for gpu in cuda_devices()], "driver": driver_version(), "cuda": cuda_version()}
