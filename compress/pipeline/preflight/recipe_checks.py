"""Checks of a recipe alone: the names it may use, settings without effect, and the file of a service."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from compress.errors import CompressError, Problem, group_by_reason
from compress.formats import FORMATS
from compress.label.service_info import read_service
from compress.measure.quality.robustness import PERTURBATIONS
from compress.prune.criteria import CRITERIA
from compress.prune.latency_table import LATENCY_VARIANTS
from compress.quantize import CHOICES, chosen_methods
from compress.recipe.schema import Recipe
from compress.recipe.training_schema import Training
from compress.recipe.yaml_lines import KeyPath
from compress.runtimes import why_not_in_all
from compress.steps import STEPS, own_distillations, trainings
from compress.steps.distillations import distillation_problems
from compress.steps.finetune_step import HEADLESS
from compress.tasks import KINDS, TASK_NAMES, primary_metric
from compress.variants import ALL_FORMATS, EXPORTS, QUANTIZERS, VARIANTS, competing_formats, variants_for

TRACKERS = ("tensorboard", "wandb", "mlflow", "comet_ml", "aim", "clearml", "dvclive", "swanlab", "trackio")
"""Experiment trackers that Accelerate supports; each needs its own library installed."""

NAMES: Mapping[str, Collection[str]] = {
    **TASK_NAMES,
    "pruning criteria": CRITERIA,
    "latency variants": LATENCY_VARIANTS,
    "quantizers": (*CHOICES, *QUANTIZERS),
    "formats": (ALL_FORMATS, *EXPORTS),
    "variants": VARIANTS,
    "perturbations": PERTURBATIONS,
    "trackers": TRACKERS,
}


def unused_settings(recipe: Recipe) -> Iterator[Problem]:
    """Yield every setting of quantization and of model steps that has no effect; defaults are never reported."""
    yield from _quantization(recipe)
    yield from _cascades(recipe)
    yield from _runs_nowhere(recipe)
    yield from _not_measured(recipe)
    yield from _open_gate(recipe)
    for step in STEPS.values():
        yield from step.problems(recipe)
    for path, training in trainings(recipe):
        yield from _unfit_for_the_kind(recipe.task.kind, path, training)
    for path, settings in own_distillations(recipe):
        yield from distillation_problems(recipe.task.kind, path, settings)


def _unfit_for_the_kind(kind: str, path: KeyPath, training: Training) -> Iterator[Problem]:
    """Yield weights of classes where there are none, and a head that is trained first where there is none."""
    if training.class_weights and not KINDS[kind].loss.weighted:
        readers = ", ".join(name for name, each in KINDS.items() if each.loss.weighted)
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


def _open_gate(recipe: Recipe) -> Iterator[Problem]:
    """Yield gates that no score can miss: points of 100 were given in place of a share."""
    metric, quantize = primary_metric(recipe.task), recipe.quantize
    limits = {("gate", "max_class_drop"): (recipe.gate.max_class_drop, "recall")}
    if metric.larger_is_better:
        limits["gate", "max_drop"] = (recipe.gate.max_drop, metric.name)
        limits["quantize", "max_drop"] = (quantize.max_drop if quantize else None, metric.name)
    for path, (drop, name) in limits.items():
        if drop is not None and drop > 1:
            share = f"; {drop:g} of 100 is {drop / 100:g}" if drop <= 100 else ""
            yield Problem(path, f"{drop:g} is more than {name} itself, which is at most 1{share}")


def _not_measured(recipe: Recipe) -> Iterator[Problem]:
    """Yield limits and a rank of what is not measured, as every row would be ruled out; and what cannot be."""
    if recipe.measure.robustness and not KINDS[recipe.task.kind].perturbable:
        reason = f"{recipe.task.kind} has no text that could change without changing its answer"
        yield Problem(("measure", "robustness"), reason)
    if any(budget.memory for budget in recipe.budget) and 1 not in recipe.measure.memory:
        yield Problem(("budget", "memory"), "is that of serving one by one; add 1 to measure.memory")
    fixed = {target.title for target in recipe.targets if target.length != "data"}
    for title in sorted(fixed):
        limited = any(budget.end_to_end and budget.target in (None, title) for budget in recipe.budget)
        if limited or recipe.rank_by == "end_to_end":
            path = ("budget", "end_to_end") if limited else ("rank_by",)
            reason = f"{title} times pieces of a fixed length, not texts"
            yield Problem(path, f"{reason}; leave the target's length out, or give the budget another target")


def _cascades(recipe: Recipe) -> Iterator[Problem]:
    """Yield why there is no cascade for a recipe's task, or on its targets."""
    if recipe.cascade and (reason := KINDS[recipe.task.kind].no_certainty):
        yield Problem(("cascade",), f"there is none for {recipe.task.kind}: {reason}")
    if recipe.cascade and all(target.device != "cpu" for target in recipe.targets):
        yield Problem(("cascade",), "it runs on the CPU, and no target does")


def _quantization(recipe: Recipe) -> Iterator[Problem]:
    """Yield quantization without a format for it, or without a model."""
    if not recipe.quantize:
        return
    names, kinds = recipe.quantize.methods, (True, *([False] if recipe.light_students else []))
    if any(chosen_methods(names, competing_formats(recipe, has_attention=has), has_attention=has) for has in kinds):
        return
    unfit = [name for name in names if name in QUANTIZERS and not FORMATS[QUANTIZERS[name].format].has_attention]
    if unfit:
        reason = f"{', '.join(unfit)}: for students without attention (static, conv), and the recipe has none"
        yield Problem(("quantize",), reason)
    else:
        yield Problem(("quantize",), "has no effect: no format that competes has a method for INT8; add onnx to export")


def service_problems(recipe: Recipe) -> Iterator[Problem]:
    """Yield what is wrong with the recipe's `service`."""
    if recipe.service is None:
        return
    try:
        service = read_service(Path(recipe.service))
    except CompressError as error:
        yield Problem(("service",), error.full_message)
        return
    if service.kind != recipe.task.kind:
        yield Problem(("service",), f"{service.model} answered a task of kind {service.kind}, not {recipe.task.kind}")
    elif set(service.labels) != set(recipe.task.labels or service.labels):
        yield Problem(("service",), f"{service.model} answered with other labels: {', '.join(service.labels)}")
