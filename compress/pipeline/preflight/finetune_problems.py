"""Finds settings of `finetune` that exclude each other, or that the task's kind does not allow."""

from __future__ import annotations

from collections.abc import Iterator

from compress.errors import Problem
from compress.recipe.finetune_schema import Finetune
from compress.recipe.schema import Recipe
from compress.tasks import KINDS

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


def finetune_problems(recipe: Recipe, settings: Finetune) -> Iterator[Problem]:
    """Yield what prevents a fine-tuning, one problem for a setting; defaults are never reported."""
    reported = set()
    for problem in _problems(recipe, settings):
        if problem.path not in reported:
            yield problem
        reported.add(problem.path)


def _problems(recipe: Recipe, settings: Finetune) -> Iterator[Problem]:
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
