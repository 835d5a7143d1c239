"""Finds settings of `finetune` that exclude each other, or that the task's kind does not allow."""

from __future__ import annotations

from collections.abc import Iterator

from compress.errors import Problem
from compress.recipe.finetune_schema import Finetune
from compress.tasks import KINDS

HEADLESS = "sentence-embedding"
"""The head of kinds whose output is the encoder's own."""
USED_WHEN_FROZEN = frozenset({"reuse", "method", "pooling", "class_weights", "checkpoint"})
"""Settings with an effect where the encoder is not trained."""


def finetune_problems(settings: Finetune, kind: str) -> Iterator[Problem]:
    """Yield what prevents a fine-tuning; defaults are never reported."""
    if settings.method == "frozen":
        yield from _frozen(settings, kind)
    for name, values in settings.grid.values.items() if settings.grid else ():
        if name in settings.model_fields_set and getattr(settings, name) != "auto":
            reason = f"is given here and in the grid ({', '.join(f'{value:g}' for value in values)}): give one of them"
            yield Problem(("finetune", name), reason)


def _frozen(settings: Finetune, kind: str) -> Iterator[Problem]:
    if KINDS[kind].head == HEADLESS:
        reason = f"frozen has nothing to train for {kind}: an embedding is the encoder's own output"
        yield Problem(("finetune", "method"), reason)
    defaults = Finetune()
    for name in type(settings).model_fields:
        if name not in USED_WHEN_FROZEN and getattr(settings, name) != getattr(defaults, name):
            reason = "has no effect with method: frozen, which fits the last layer to all rows at once, without updates"
            yield Problem(("finetune", name), reason)
