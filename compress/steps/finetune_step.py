"""The step that makes the teacher: the model that a recipe names, fine-tuned or taken as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.data.splits.prepare_splits import load_prepared
from compress.errors import ModelError, Problem
from compress.model_sources import identity
from compress.recipe.distill_schema import FurtherTeacher
from compress.recipe.schema import Recipe
from compress.recipe.training_schema import FEATURE_LAYERS, Finetune
from compress.steps.distillations import Rates, rates_of
from compress.steps.model_configs import Check, Config, ModelConfigs, check_frozen_layers, known_shape, shape_made_of
from compress.steps.model_step import (
    ModelStep,
    NamedModel,
    PlannedModel,
    Smoke,
    StepKind,
    hashed_training,
    with_settings,
)
from compress.storage.file_names import ANSWERS_FILE
from compress.tasks import KINDS

if TYPE_CHECKING:
    from compress.pipeline.graph import Plan
    from compress.pipeline.step_context import StepContext

HEADLESS = "sentence-embedding"
"""The head of kinds whose output is the encoder's own."""
POOLED = "sequence-classification"
"""The head of kinds whose output is one of a whole text."""
TAGS = "token-classification"
"""The head of kinds whose output is one of each token."""
USED_WHEN_FITTED = frozenset({"reuse", "method", "features", "head", "pooling", "class_weights", "checkpoint"})
"""Settings with an effect where a last layer is fitted."""
NOT_OF_A_NEW_HEAD = ("method", "pooling", "init", "freeze", "unfreeze", "layer_decay", "compile")
"""Settings without an effect where a new head alone is trained."""


def add_teacher(plan: Plan, cards: Sequence[Path], parent: str | None = None) -> None:
    """The model that the recipe names, fine-tuned or taken as it is."""
    recipe = plan.recipe
    settings: dict[str, Any] = {
        "teacher": identity(recipe.teacher.source, recipe.teacher.revision, cards),
        "finetune": recipe.finetune and hashed_training(recipe.finetune),
        "seed": recipe.seed,
    }
    further = tuple(named for _, settings in plan.distillations for named in settings.teachers)
    run = partial(finetune, recipe=recipe, cards=tuple(cards), further=further)
    step = plan.add("finetune", "finetune", settings, ["data"], run, trains=True)
    plan.models.append(PlannedModel("teacher", step, None, "finetune", recipe.finetune or None))


def finetune(context: StepContext, recipe: Recipe, cards: Sequence[Path], further: Sequence[FurtherTeacher]) -> Rates:
    """Make the teacher: fine-tuned, or taken as it is. ``further`` teachers are checked first.

    What it was fine-tuned from is a baseline, whose predictions on test are stored beside it.
    """
    from compress.train.distillation.teachers import check_further_teacher
    from compress.train.finetune import finetune as train

    data, teacher = context.inputs["data"], recipe.teacher
    for named in further:
        check_further_teacher(named, load_prepared(data).info.task_info)
    reporting: dict[str, Any] = {"console": context.console, "track": context.track}
    origin: dict[str, Any] = {"revision": teacher.revision, "cards": cards}
    trained = train(teacher.source, data, recipe.finetune, recipe.seed, context.work, **origin, **reporting)
    if trained.start is not None:
        np.savez(context.work / ANSWERS_FILE, test=trained.start)
    return rates_of(context, trained, recipe.finetune)


def _named_models(recipe: Recipe) -> Iterator[NamedModel]:
    yield NamedModel(("teacher",), recipe.teacher.source, recipe.teacher.revision)


def _checks(configs: ModelConfigs) -> Iterator[Check]:
    if settings := configs.recipe.finetune:
        yield "finetune", partial(check_frozen_layers, settings, shape_made_of(configs.teacher, None))
        yield "finetune", partial(_check_features, settings, configs.teacher)


def _check_features(settings: Finetune, teacher: Config) -> None:
    """Refuse to read more layers than the teacher has."""
    if settings.features and (shape := known_shape(teacher)) and len(shape.heads) < FEATURE_LAYERS:
        raise ModelError(
            f"features: {settings.features} reads {FEATURE_LAYERS} layers, and the teacher has {len(shape.heads)}.",
            hint="method: frozen reads the last one",
        )


def _shrink(recipe: Recipe, smoke: Smoke) -> Recipe:
    """The random teacher is always trained: it has no head, even if the recipe's has one."""
    settings: Finetune = smoke.few_updates(recipe.finetune or Finetune())
    if settings.features:  # a tiny model has fewer layers
        settings = settings.model_copy(update={"features": None, "head": "linear", "method": "frozen"})
    return with_settings(recipe, ("finetune",), settings)


def _problems(recipe: Recipe) -> Iterator[Problem]:
    """Yield settings that exclude each other or that the kind does not allow, one problem each; never defaults."""
    reported, settings = set(), recipe.finetune
    if not settings:
        return
    for problem in _all_problems(recipe, settings):
        if problem.path not in reported:
            yield problem
        reported.add(problem.path)


def _all_problems(recipe: Recipe, settings: Finetune) -> Iterator[Problem]:
    kind = recipe.task.kind
    if settings.features and not recipe.student and recipe.prune and recipe.prune.removes_units:
        reason = (
            "last4: heads and neurons of this teacher cannot be pruned: its head reads four layers, which were never"
            " trained together. Prune a student of it, or leave features out"
        )
        yield Problem(("finetune", "features"), reason)
    yield from _unfit_for_the_head(settings, kind)
    if settings.head == "bilstm":
        yield from _bilstm(settings, kind)
    if settings.is_fitted:
        yield from _fitted(settings, kind)
    for name, values in settings.grid.values.items() if settings.grid else ():
        if name in settings.model_fields_set and getattr(settings, name) != "auto":
            reason = f"is given here and in the grid ({', '.join(f'{value:g}' for value in values)}): give one of them"
            yield Problem(("finetune", name), reason)


def _unfit_for_the_head(settings: Finetune, kind: str) -> Iterator[Problem]:
    """Yield what the head of a kind does not read."""
    head = KINDS[kind].head
    if settings.pooling != "auto" and head != POOLED:
        hint = "; task.pooling is what an embedding is made of" if head == HEADLESS else ""
        yield Problem(("finetune", "pooling"), f"is for heads that read whole texts, and {kind} has none{hint}")
    if settings.init != Finetune().init and head == HEADLESS:
        yield Problem(("finetune", "init"), f"has no effect for {kind}: an embedding is the encoder's own output")


def _bilstm(settings: Finetune, kind: str) -> Iterator[Problem]:
    if settings.features is None:
        yield Problem(("finetune", "head"), "bilstm: reads the states of four layers: add features: last4")
        return
    if KINDS[kind].head != TAGS:
        reason = f"bilstm: reads the tokens of a text to tag them (token_classification); leave head out for {kind}"
        yield Problem(("finetune", "head"), reason)
    defaults = Finetune()
    for name in NOT_OF_A_NEW_HEAD:
        if getattr(settings, name) != getattr(defaults, name):
            reason = "has no effect with head: bilstm, which alone is trained, from random weights"
            yield Problem(("finetune", name), reason)


def _fitted(settings: Finetune, kind: str) -> Iterator[Problem]:
    key = "method" if settings.features is None else "features"
    if settings.features and settings.pooling == "cls":
        yield Problem(("finetune", "pooling"), "cls: with features: last4 the head reads the mean of all tokens")
    if KINDS[kind].head == HEADLESS:
        reason = f"has nothing to train for {kind}: an embedding is the encoder's own output"
        yield Problem(("finetune", key), reason)
    defaults = Finetune()
    for name in type(settings).model_fields:
        if name not in USED_WHEN_FITTED and getattr(settings, name) != getattr(defaults, name):
            chosen = f"{key}: {getattr(settings, key)}"
            reason = f"has no effect with {chosen}, which fits the last layer to all rows at once, without updates"
            yield Problem(("finetune", name), reason)


FINETUNE = ModelStep(
    title="fine-tuning the teacher",
    path=("finetune",),
    training=("finetune",),
    kinds={"finetune": StepKind(version=4)},
    in_effect=lambda recipe: True,  # a teacher that is not trained is taken as it is
    plan=add_teacher,
    named_models=_named_models,
    problems=_problems,
    checks=_checks,
    shrink=_shrink,
)
