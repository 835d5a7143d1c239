"""Plans what happens between quantizing a model and scoring it: layers return to fp32, and few files are kept.

Every quantized file is judged on select at once. A model quantized by several methods keeps the first one's file, and
of the others those that a screening finds worth their time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from compress.environment import describe, versions
from compress.pipeline.graph import Plan
from compress.pipeline.steps.fallback_step import FallbackSettings, fallback
from compress.pipeline.steps.scoring_steps import scoring_batch
from compress.pipeline.steps.screen_step import ADMISSION, admit, screen_files
from compress.pipeline.steps.select_step import rules_of
from compress.recipe.measure_schema import Target
from compress.runtimes import RUNTIMES
from compress.steps.model_step import PlannedModel
from compress.variants import VARIANTS, Variant


def cpu_target(plan: Plan) -> Target | None:
    """Return the first target on the CPU that this machine has."""
    return next((target for target in plan.present_targets if target.device == "cpu"), None)


def add_fallback(plan: Plan, model: PlannedModel, variant: Variant, quantized: str, built: Mapping[str, str]) -> str:
    """The step that judges a quantized file and returns layers to fp32 where it loses too much.

    Where nothing can be judged (no limit is given, or no target is here), this is the step that quantized.
    """
    recipe, target = plan.recipe, cpu_target(plan)
    scores = {entry.key: entry.scores for entry in plan.variants}.get(f"{model.name}/{variant.unquantized}", {})
    if recipe.quantize is None or variant.unquantized is None or target is None or target.title not in scores:
        return quantized
    scored = scores[target.title]
    settings = FallbackSettings(
        rules=rules_of(recipe),
        device=target.device,
        batch=scoring_batch(variant, target),
        batches=tuple(sorted({each.batch for each in plan.present_targets if each.device in variant.devices})),
        threads=target.threads,
        bootstrap=recipe.measure.bootstrap,
        seed=recipe.seed,
    )
    source = built[variant.unquantized]
    run = partial(fallback, quantized=quantized, source=source, scored=scored, variant=variant, settings=settings)
    hashed: dict[str, Any] = {"variant": variant.name, "version": variant.version, "leaves_fp32": variant.leaves_fp32}
    judging = settings.rules.model_dump(mode="json", include={"quantize_max_drop", "strict"})
    hashed |= vars(settings) | {"rules": judging, "batches": list(settings.batches)}
    needs = ["data", quantized, source, scored]
    return plan.add(f"fallback-{model.name}-{variant.name}", "fallback", hashed, needs, run, optional=True)


def add_screening(plan: Plan, model: PlannedModel, files: Mapping[str, str]) -> str:
    """The step that compares the quantized files of a model; ``files`` by variant are steps, the first method's first.

    Their losses are judged in their own steps, of which only the fingerprint names the rules.
    """
    target = cpu_target(plan)
    assert target is not None  # files are judged for a target
    settings: dict[str, Any] = {"files": dict(files), "threads": target.threads, "seed": plan.recipe.seed}
    run = partial(screen_files, **settings)
    libraries = {name for variant in files for name in RUNTIMES[VARIANTS[variant].runtime].libraries}
    settings |= {"judged": {name: dict(plan.step(step).settings) for name, step in files.items()}}
    settings |= {"machine": describe().fingerprint, "versions": versions(sorted(libraries))}
    needs = ["data", *files.values()]
    return plan.add(f"screen-{model.name}", "screen", settings, needs, run, optional=True, tolerant=True)


def add_admission(plan: Plan, model: PlannedModel, variant: Variant, judged: str, screening: str) -> str:
    """The step that passes a file on to scoring and timing if the screening kept it."""
    run = partial(admit, parent=judged, screening=screening, variant=variant.name)
    name, settings = f"admit-{model.name}-{variant.name}", {"variant": variant.name}
    return plan.add(name, ADMISSION, settings, [judged, screening], run, optional=True)
