"""Finds recipe settings that have no effect."""

from __future__ import annotations

from collections.abc import Iterator

from compress.errors import Problem
from compress.losses import LOSSES, LayerLoss
from compress.recipe.loss_schema import SoftLabel
from compress.recipe.schema import Recipe
from compress.recipe.training_schema import Distill
from compress.recipe.yaml_lines import KeyPath

NUMERIC_KINDS = ("regression", "similarity", "retrieval")
"""Kinds whose outputs are numbers or embeddings, for which soft labels have one form and no temperature."""

MAPPED_LOSSES = [name for name, loss in LOSSES.items() if isinstance(loss, LayerLoss) and loss.at == "mapped"]
"""Losses that use the layer map."""


def unused_settings(recipe: Recipe) -> Iterator[Problem]:
    """Yield every setting of a distillation that has no effect; defaults are never reported."""
    for path, settings in recipe.distillations():
        yield from _unused_forms(path, settings, recipe.task.kind)
        yield from _unused_temperature(path, settings, recipe.task.kind)
        yield from _unused_layer_map(path, settings)


def _soft_labels(path: KeyPath, settings: Distill) -> Iterator[tuple[KeyPath, SoftLabel]]:
    """Yield the soft labels of all phases with their key paths."""
    for number, phase in enumerate(settings.phases_or_default()):
        soft = phase.losses.chosen().get("soft_label")
        if isinstance(soft, SoftLabel):
            position: KeyPath = ("phases", number) if settings.phases else ()
            yield (*path, *position, "losses", "soft_label"), soft


def _unused_forms(path: KeyPath, settings: Distill, kind: str) -> Iterator[Problem]:
    if kind not in NUMERIC_KINDS:
        return
    for key, soft in _soft_labels(path, settings):
        reason = f"has no effect for {kind}, whose outputs are compared by their squared distance"
        if soft.form != "kl":
            yield Problem((*key, "form"), f"{soft.form} {reason}")
        elif soft.temperature is not None:
            yield Problem((*key, "temperature"), reason)


def _unused_temperature(path: KeyPath, settings: Distill, kind: str) -> Iterator[Problem]:
    softened = [soft for _, soft in _soft_labels(path, settings) if soft.form != "mse" and soft.temperature is None]
    if settings.temperature != Distill().temperature and (not softened or kind in NUMERIC_KINDS):
        yield Problem(
            (*path, "temperature"),
            "has no effect here: it softens what soft_label compares (forms kl and decoupled of probabilities)",
        )


def _unused_layer_map(path: KeyPath, settings: Distill) -> Iterator[Problem]:
    if settings.layer_map != Distill().layer_map and not settings.loss_names() & set(MAPPED_LOSSES):
        yield Problem(
            (*path, "layer_map"),
            f"has no effect without a loss that compares mapped layers: {' or '.join(MAPPED_LOSSES)}",
        )
