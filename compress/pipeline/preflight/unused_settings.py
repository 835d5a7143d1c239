"""Settings of a recipe that nothing would read: a mistake, told with its key and line before anything runs."""

from __future__ import annotations

from collections.abc import Iterator

from compress.errors import Problem
from compress.losses import LOSSES, LayerLoss
from compress.recipe.loss_schema import SoftLabel
from compress.recipe.schema import Recipe
from compress.recipe.training_schema import Distill
from compress.recipe.yaml_lines import KeyPath

NUMBERS = ("regression", "similarity", "retrieval")
"""Kinds whose answers are numbers or embeddings, for which soft labels have one form and no temperature."""

MAPPED = [name for name, loss in LOSSES.items() if isinstance(loss, LayerLoss) and loss.at == "mapped"]
"""Losses that a layer map is for."""


def unused_settings(recipe: Recipe) -> Iterator[Problem]:
    """Every setting of a distillation that does nothing as the recipe stands; defaults are never told."""
    for path, settings in recipe.distillations():
        yield from _idle_forms(path, settings, recipe.task.kind)
        yield from _idle_temperature(path, settings, recipe.task.kind)
        yield from _idle_map(path, settings)


def _soft_labels(path: KeyPath, settings: Distill) -> Iterator[tuple[KeyPath, SoftLabel]]:
    """The soft labels that count in any phase, with their places."""
    for number, phase in enumerate(settings.phases_or_default()):
        soft = phase.losses.chosen().get("soft_label")
        if isinstance(soft, SoftLabel):
            place: KeyPath = ("phases", number) if settings.phases else ()
            yield (*path, *place, "losses", "soft_label"), soft


def _idle_forms(path: KeyPath, settings: Distill, kind: str) -> Iterator[Problem]:
    if kind not in NUMBERS:
        return
    for place, soft in _soft_labels(path, settings):
        told = f"does nothing for {kind}, whose answers are compared by their squared distance"
        if soft.form != "kl":
            yield Problem((*place, "form"), f"{soft.form} {told}")
        elif soft.temperature is not None:
            yield Problem((*place, "temperature"), told)


def _idle_temperature(path: KeyPath, settings: Distill, kind: str) -> Iterator[Problem]:
    reads = [soft for _, soft in _soft_labels(path, settings) if soft.form != "mse" and soft.temperature is None]
    if settings.temperature != Distill().temperature and (not reads or kind in NUMBERS):
        yield Problem(
            (*path, "temperature"),
            "does nothing here: it softens what soft_label compares (forms kl and decoupled, answers that are chances)",
        )


def _idle_map(path: KeyPath, settings: Distill) -> Iterator[Problem]:
    if settings.layer_map != Distill().layer_map and not settings.loss_names() & set(MAPPED):
        yield Problem(
            (*path, "layer_map"), f"does nothing without a loss that compares mapped layers: {' or '.join(MAPPED)}"
        )
