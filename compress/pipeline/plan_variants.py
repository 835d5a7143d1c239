"""Plans the steps that build every variant of a model, score it as each target uses it, and tune it.

Between quantizing a model and scoring it, layers return to fp32, and few of several files are kept.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from compress.environment import describe, versions
from compress.pipeline.graph import ModelVariant, Plan
from compress.pipeline.steps import build_variant, scoring_steps
from compress.pipeline.steps.quantized_steps import ADMISSION, FallbackSettings, admit, fallback, screen_files
from compress.pipeline.steps.scoring_steps import scoring_batch
from compress.pipeline.steps.select_step import rules_of
from compress.quantize import QUANTIZERS, chosen_methods
from compress.recipe.measure_schema import Target
from compress.runtimes import RUNTIMES
from compress.steps.model_step import PlannedModel
from compress.variants import VARIANTS, Variant, competing_formats, variants_for


def add_variants(plan: Plan, model: PlannedModel) -> None:
    """The steps that build every variant of one model, and then score and tune those that are worth it.

    Every model is quantized by the recipe's first method. The final ones are by all, and of the files that the further
    ones make, a screening keeps some.
    """
    recipe, has_attention = plan.recipe, model.has_attention
    formats = competing_formats(recipe, has_attention=has_attention)
    devices = list(dict.fromkeys(target.device for target in recipe.targets))
    named = recipe.quantize.methods if recipe.quantize else ()
    methods = chosen_methods(named, formats, has_attention=has_attention)
    if model not in plan.final:
        methods = methods[:1]
    further = {QUANTIZERS[method].name for method in methods[1:]} - {*recipe.variants}
    built: dict[str, str] = {}
    judged: dict[str, str] = {}
    for variant in variants_for(formats, methods, devices, also=recipe.variants):
        step = built[variant.name] = _add_build(plan, model, variant, built | judged)
        if variant.quantizer is not None:
            judged[variant.name] = step = add_fallback(plan, model, variant, step, built)
        if variant.name not in further:
            _add_row(plan, model, variant, step, judged.get(variant.name))
    compared = {QUANTIZERS[method].name: judged[QUANTIZERS[method].name] for method in methods}
    screened = {name: step for name, step in compared.items() if plan.step(step).kind == "fallback"}
    screening = add_screening(plan, model, screened) if further & {*screened} else ""
    for name in (name for name in judged if name in further):
        variant, step = VARIANTS[name], judged[name]
        if name in screened:
            step = add_admission(plan, model, variant, step, screening)
        _add_row(plan, model, variant, step, judged[name])


def _add_row(plan: Plan, model: PlannedModel, variant: Variant, step: str, judged: str | None) -> None:
    """A row of the ledger: the steps that score and tune the variant that ``step`` makes."""
    recipe = plan.recipe
    targets = [target for target in plan.present_targets if target.device in variant.devices]
    scores = {target.title: add_scoring(plan, "score", model, variant, step, target) for target in targets}
    changed = targets if recipe.measure.robustness else []
    perturbs = {target.title: add_scoring(plan, "perturb", model, variant, step, target) for target in changed}
    tuned = _add_tuning(plan, model, variant, step)
    plan.variants.append(ModelVariant(model.name, variant, tuned, scores, perturbs, judged))


def _add_build(plan: Plan, model: PlannedModel, variant: Variant, built: Mapping[str, str]) -> str:
    """The step that builds ``variant``, or the model's own step where nothing has to be built."""
    if variant.builder is None:
        return model.step
    kind = "quantize" if variant.quantizer else "export"
    parent = built[variant.needs] if variant.needs else model.step
    batches = sorted({target.batch for target in plan.present_targets if target.device in variant.devices})
    chosen = {key: getattr(plan.recipe.quantize, key) for key in variant.reads}
    settings: dict[str, Any] = {"batches": batches, "seed": plan.recipe.seed, "settings": chosen}
    run = partial(build_variant.build, parent=parent, variant=variant, **settings)
    settings |= {"variant": variant.name, "version": variant.version}
    return plan.add(f"{kind}-{model.name}-{variant.name}", kind, settings, ["data", parent], run, optional=True)


def _add_tuning(plan: Plan, model: PlannedModel, variant: Variant, parent: str) -> str:
    """The step that chooses session options on this machine, or ``parent`` where there is nothing to choose.

    What is built and scored names no machine; what is timed and deployed has the options.
    """
    target = cpu_target(plan)
    if variant.tuner is None or target is None or "cpu" not in variant.devices:
        return parent
    settings: dict[str, Any] = {"threads": target.threads, "seed": plan.recipe.seed}
    run = partial(build_variant.tune, parent=parent, variant=variant, **settings)
    libraries = versions(RUNTIMES[variant.runtime].libraries)
    settings |= {"variant": variant.name, "machine": describe().fingerprint, "versions": libraries}
    return plan.add(f"tune-{model.name}-{variant.name}", "tune", settings, ["data", parent], run, optional=True)


def add_scoring(
    plan: Plan, kind: Literal["score", "perturb"], model: PlannedModel, variant: Variant, parent: str, target: Target
) -> str:
    """The step that predicts with a variant as ``target`` uses it; targets that use it alike share one.

    Changed texts have a step of their own: requesting other changes scores nothing else again.
    """
    batch = scoring_batch(variant, target)
    name = f"{kind}-{model.name}-{variant.name}-{target.device}-b{batch}"
    if all(step.name != name for step in plan.steps):
        settings: dict[str, Any] = {"device": target.device, "batch": batch}
        if kind == "perturb":
            settings |= {"names": list(plan.recipe.measure.robustness), "seed": plan.recipe.seed}
        function = scoring_steps.score if kind == "score" else scoring_steps.perturb
        run = partial(function, parent=parent, variant=variant, **settings)
        plan.add(name, kind, {"variant": variant.name, **settings}, ["data", parent], run, optional=True)
    return name


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
