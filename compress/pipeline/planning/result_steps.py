"""Plans the steps over all models and variants: baseline, timing, scores, selection, packaging, report, publishing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from compress.environment import cuda_devices, cuda_version, describe, driver_version, versions
from compress.export_formats import packaged_formats
from compress.pipeline.graph import Plan
from compress.pipeline.steps.build_report import report
from compress.pipeline.steps.measure_step import measure
from compress.pipeline.steps.package_format import PACKAGE_FORMAT, package_format
from compress.pipeline.steps.package_step import package
from compress.pipeline.steps.publish_step import is_in_zoo, publish
from compress.pipeline.steps.quality_step import quality
from compress.pipeline.steps.scoring_steps import floor
from compress.pipeline.steps.select_step import rules_of, select
from compress.pipeline.strip_paths import recipe_without_paths
from compress.recipe.measure_schema import Measure
from compress.runtimes import RUNTIMES
from compress.storage.file_digests import file_digest
from compress.variants import VARIANTS

SHARED_LIBRARIES = ("tokenizers", "numpy")
"""Their versions are part of every measurement."""


def add_results(plan: Plan, limits: bool) -> None:
    """Add the steps over all models and variants; with ``limits``, the machine's own limits are measured too."""
    recipe, missing = plan.recipe, dict(plan.missing_targets)
    served = list(dict.fromkeys(entry.step for entry in plan.variants))
    # A simple method is scored for comparison: a bag of words, where the task has one.
    plan.add("floor", "floor", {"seed": recipe.seed}, ["data"], partial(floor, seed=recipe.seed), optional=True)
    run = partial(measure, plan=plan, limits=limits)
    plan.add("measure", "measure", _measuring(plan, limits), ["data", *served], run, optional=True, tolerant=True)
    settings: dict[str, Any] = {
        "bootstrap": recipe.measure.bootstrap,
        "seed": recipe.seed,
        "rows": {entry.key: {"scores": entry.scores, "perturbs": entry.perturbs} for entry in plan.variants},
    }
    needs = [step.name for step in plan.steps if step.kind in ("data", "slices", "score", "perturb", "floor")]
    needs.append(plan.teacher.step)  # has the scores of what it was fine-tuned from
    plan.add("quality", "quality", settings, needs, partial(quality, plan=plan), tolerant=True)
    settings = {
        "rules": rules_of(recipe).model_dump(mode="json"),
        "targets": [[target.title, target.device] for target in recipe.targets],
        "missing": missing,
        "rows": [entry.key for entry in plan.variants],
    }
    plan.add("select", "select", settings, ["quality", "measure", *served], partial(select, plan=plan), tolerant=True)
    _add_packaged_formats(plan, settings, served)
    settings = {"recipe": recipe_without_paths(recipe)}
    needs = ["select", *served, *plan.packages.values()]
    plan.add("package", "package", settings, needs, partial(package, plan=plan), tolerant=True)
    needs = [step.name for step in plan.steps]
    settings |= {"missing": missing, "service": file_digest(Path(recipe.service)) if recipe.service else None}
    settings |= {"left_out": [*plan.left_out]} if plan.left_out else {}
    plan.add("report", "report", settings, needs, partial(report, plan=plan), tolerant=True)
    if recipe.publish:
        to = str(Path(recipe.publish.to).expanduser().absolute())
        settings = {"to": to, "name": recipe.publish.name or recipe.name}
        run, in_effect = partial(publish, settings=recipe.publish), partial(is_in_zoo, settings=recipe.publish)
        plan.add("publish", "publish", settings, ["package", "report"], run, optional=True, in_effect=in_effect)


def _add_packaged_formats(plan: Plan, selecting: Mapping[str, Any], served: Sequence[str]) -> None:
    """The steps that build a format for winners only, one a format; ``selecting`` are the settings of the selection."""
    recipe, scored = plan.recipe, plan.step("quality").needs
    for form in packaged_formats(recipe):
        settings: dict[str, Any] = {
            "format": form,
            "versions": _versions(form),
            "rules": selecting["rules"],
            "bootstrap": recipe.measure.bootstrap,
            "seed": recipe.seed,
        }
        run = partial(package_format, plan=plan, form=form)
        needs = list(dict.fromkeys(["select", "quality", *scored, *served, *(each.step for each in plan.evaluated)]))
        name = f"package-{form}"
        plan.packages[form] = plan.add(name, PACKAGE_FORMAT, settings, needs, run, optional=True, tolerant=True)


def _versions(form: str) -> dict[str, int]:
    """The versions of the builders of a format's variants, and of what they are made from, which may be built too."""
    found: dict[str, int] = {}
    needed: set[str | None] = set()
    for name, each in reversed(VARIANTS.items()):  # sources come first in the table
        if each.builder and (each.format == form or name in needed):
            found[name] = each.version
            needed.add(each.needs)
    return found


def _measuring(plan: Plan, limits: bool) -> dict[str, Any]:
    """The settings of the step that times every variant."""
    targets = plan.present_targets
    libraries = {name for entry in plan.variants for name in RUNTIMES[entry.variant.runtime].libraries}
    return {
        "targets": [target.model_dump(mode="json", exclude={"price"}) for target in targets],
        "measure": timing_settings(plan.recipe.measure),
        "variants": [entry.key for entry in plan.variants],
        "machine": describe().fingerprint,
        "accelerators": _accelerators() if any(target.device == "cuda" for target in targets) else {},
        "limits": limits,
        "seed": plan.recipe.seed,
        "versions": versions(sorted({*libraries, *SHARED_LIBRARIES})),
    }


def timing_settings(settings: Measure) -> dict[str, Any]:
    """The settings that change the result of the measuring step.

    Perturbed texts are scored in a step of their own, and a budget takes precedence over rounds and processes.
    """
    unused = {"robustness"} | ({"rounds", "processes"} if settings.budget else set())
    return settings.model_dump(mode="json", exclude=unused)


def _accelerators() -> dict[str, Any]:
    """The devices and what drives them: other drivers and libraries have other kernels."""
    return {"names": [gpu.name for gpu in cuda_devices()], "driver": driver_version(), "cuda": cuda_version()}
