"""Plans the steps over all models and variants: the baseline, measuring, and the report."""

from __future__ import annotations

from functools import partial
from typing import Any

from compress.environment import cuda_devices, cuda_version, describe, driver_version, versions
from compress.formats import RUNTIMES
from compress.pipeline.graph import Plan
from compress.pipeline.steps import measure_step, report_step, scoring_steps
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
    plan.add("measure", "measure", settings, needs, run, optional=True)


def timing_settings(settings: Measure) -> dict[str, Any]:
    """The settings that change the result of the measuring step.

    Changed texts are a step of their own, and a budget is kept to whatever the rounds and processes are.
    """
    unused = {"robustness"} | ({"rounds", "processes"} if settings.budget else set())
    return settings.model_dump(mode="json", exclude=unused)


def add_report(plan: Plan) -> None:
    """The step that gathers the results of all others."""
    settings = {"recipe": recipe_without_paths(plan.recipe), "missing": dict(plan.missing_targets)}
    needs = [step.name for step in plan.steps]
    plan.add("report", "report", settings, needs, partial(report_step.report, plan=plan))


def _accelerators() -> dict[str, Any]:
    """The devices and what drives them: other drivers and libraries have other kernels."""
    return {"names": [gpu.name for gpu in cuda_devices()], "driver": driver_version(), "cuda": cuda_version()}
