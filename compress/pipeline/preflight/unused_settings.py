"""Finds recipe settings that have no effect."""

from __future__ import annotations

from collections.abc import Iterator

from compress.errors import Problem, group_by_reason
from compress.losses import LOSSES, TASK_LOSSES, LayerLoss
from compress.pipeline.export_formats import competing_formats
from compress.pipeline.preflight.finetune_problems import HEADLESS, finetune_problems
from compress.quantize import chosen_methods
from compress.recipe.distill_schema import Distill
from compress.recipe.loss_schema import SoftLabel
from compress.recipe.schema import Recipe
from compress.recipe.yaml_lines import KeyPath
from compress.runtime_releases import why_not_in_all
from compress.tasks import KINDS
from compress.variants import variants_for

NUMERIC_KINDS = ("regression", "similarity", "retrieval")
"""Kinds whose outputs are numbers or embeddings, for which soft labels have one form and no temperature."""

IMITATED = "dynamic"
"""The quantizer whose arithmetic quantization-aware training imitates."""

MAPPED_LOSSES = [name for name, loss in LOSSES.items() if isinstance(loss, LayerLoss) and loss.at == "mapped"]
"""Losses that use the layer map."""


def unused_settings(recipe: Recipe) -> Iterator[Problem]:
    """Yield every setting of a training that has no effect; defaults are never reported."""
    kind, defaults = recipe.task.kind, Distill()
    yield from _quantization(recipe)
    yield from _runs_nowhere(recipe)
    if recipe.finetune:
        yield from finetune_problems(recipe, recipe.finetune)
    yield from _unfit_for_the_kind(recipe)
    for path, settings in recipe.distillations():
        soft_labels = list(_soft_labels(path, settings))
        reason = f"has no effect for {kind}, whose outputs are compared by their squared distance"
        for key, soft in soft_labels if kind in NUMERIC_KINDS else ():
            if soft.form != "kl":
                yield Problem((*key, "form"), f"{soft.form} {reason}")
            elif soft.temperature is not None:
                yield Problem((*key, "temperature"), reason)
        softened = any(soft.form != "mse" and soft.temperature is None for _, soft in soft_labels)
        if settings.temperature != defaults.temperature and (not softened or kind in NUMERIC_KINDS):
            reason = "has no effect here: it softens what soft_label compares (forms kl and decoupled of probabilities)"
            yield Problem((*path, "temperature"), reason)
        if settings.layer_map != defaults.layer_map and not settings.loss_names() & set(MAPPED_LOSSES):
            reason = f"has no effect without a loss that compares mapped layers: {' or '.join(MAPPED_LOSSES)}"
            yield Problem((*path, "layer_map"), reason)


def _unfit_for_the_kind(recipe: Recipe) -> Iterator[Problem]:
    """Yield weights of classes where there are none, and a head that is trained first where there is none."""
    kind = recipe.task.kind
    trainings = [(("finetune",), recipe.finetune)] if recipe.finetune else []
    for path, training in (*trainings, *recipe.distillations()):
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
    """Yield quantization without a format for it, and training for quantization by a method that is not used."""
    if recipe.quantize is None:
        return
    methods = chosen_methods(recipe.quantize.methods, competing_formats(recipe))
    if not methods:
        yield Problem(("quantize",), "has no effect: no format that competes has a method for INT8; add onnx to export")
    elif recipe.quantize.training and IMITATED not in methods:
        reason = f"imitates the method {IMITATED}, and methods are {', '.join(methods)}; add {IMITATED} to them"
        yield Problem(("quantize", "training"), reason)


def _soft_labels(path: KeyPath, settings: Distill) -> Iterator[tuple[KeyPath, SoftLabel]]:
    """Yield the soft labels of all phases with their key paths."""
    for number, phase in enumerate(settings.phases_or_default()):
        soft = phase.losses.chosen().get("soft_label")
        if isinstance(soft, SoftLabel):
            position: KeyPath = ("phases", number) if settings.phases else ()
            yield (*path, *position, "losses", "soft_label"), soft
