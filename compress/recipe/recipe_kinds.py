"""The kinds of recipe files, each of which a command of its own reads, and how a file of another kind is recognised."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class RecipeKind(NamedTuple):
    """One kind of file."""

    key: str
    """A key that every file of this kind has, and none of another."""
    title: str
    command: str


TASK = RecipeKind("teacher", "a task's recipe", "compress run")
LABELLING = RecipeKind("endpoint", "a labelling recipe", "compress label")
PRETRAINING = RecipeKind("text", "a pretraining recipe", "compress pretrain")
RECIPE_KINDS = (TASK, LABELLING, PRETRAINING)


def other_kind(keys: Collection[str], expected: RecipeKind) -> RecipeKind | None:
    """Return the kind of a file with these keys at its top where that is clearly not the ``expected`` one."""
    if expected.key in keys:
        return None
    return next((kind for kind in RECIPE_KINDS if kind.key in keys), None)
