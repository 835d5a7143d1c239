"""Model steps: one record and one file for each way to make a model of a run from another."""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from compress.recipe.distill_schema import Distill
from compress.recipe.schema import Recipe
from compress.recipe.training_schema import Training
from compress.recipe.yaml_lines import KeyPath
from compress.steps.distill_step import DISTILL
from compress.steps.finetune_step import FINETUNE
from compress.steps.light_step import LIGHT
from compress.steps.model_step import ModelStep, StepKind, settings_at, with_settings
from compress.steps.prune_step import PRUNE
from compress.steps.quantization_aware_step import QUANTIZATION_AWARE
from compress.steps.shared_step import SHARED
from compress.steps.vocabulary_step import VOCABULARY

STEPS: Mapping[str, ModelStep] = {
    "finetune": FINETUNE,
    "distill": DISTILL,
    "prune": PRUNE,
    "vocabulary": VOCABULARY,
    "quantize": QUANTIZATION_AWARE,
    "light": LIGHT,
    "shared": SHARED,
}
"""In the order in which a recipe's models are made: each from the last one before, the first is the teacher.
Students without attention, and parts of the shared student, come last: nothing is made of them."""

KINDS: Mapping[str, StepKind] = dict(chain.from_iterable(step.kinds.items() for step in STEPS.values()))
"""The kinds of steps that make models."""


def steps_of(recipe: Recipe) -> Iterator[ModelStep]:
    """Yield the model steps that are in effect in a recipe."""
    return (step for step in STEPS.values() if step.in_effect(recipe))


def trainings(recipe: Recipe) -> Iterator[tuple[KeyPath, Training]]:
    """Yield the settings of every training that is in effect, or that others follow from, with their key paths."""
    for path in dict.fromkeys(step.training or step.follows for step in steps_of(recipe)):
        if path and (settings := settings_at(recipe, path)):
            yield path, settings


def distillations(recipe: Recipe) -> Iterator[tuple[KeyPath, Distill]]:
    """Yield every training that learns from another model, with its key path."""
    return ((path, settings) for path, settings in trainings(recipe) if isinstance(settings, Distill))


def own_distillations(recipe: Recipe) -> Iterator[tuple[KeyPath, Distill]]:
    """Yield those with a student that has all their settings; those that others only follow from, they change."""
    own = {step.training for step in steps_of(recipe)}
    return ((path, settings) for path, settings in distillations(recipe) if path in own)


def map_trainings(recipe: Recipe, change: Callable[[Training], Training]) -> Recipe:
    """Return a copy in which ``change`` was applied to the settings of every training, in effect or not."""
    for step in STEPS.values():
        if step.training and (settings := settings_at(recipe, step.training)):
            recipe = with_settings(recipe, step.training, change(settings))
    return recipe
