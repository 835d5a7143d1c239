"""The models that a recipe names, and where each of them stands: what is no model, and what is not on this machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from compress.environment import hub_state
from compress.errors import CompressError, Problem, UsageError
from compress.model_sources import cached_checkpoint, folder_of, model_files, source_kind
from compress.recipe.schema import Recipe
from compress.recipe.yaml_lines import KeyPath


@dataclass(frozen=True)
class Named:
    """A model with the key that names it."""

    path: KeyPath
    source: str
    revision: str | None
    step: str
    """The kind of step that reads it first."""
    kind: Literal["teachers", "students"] = "teachers"


def named_models(recipe: Recipe) -> Iterator[Named]:
    """Every model that a card, a folder or a hub id names."""
    yield Named(("teacher",), recipe.teacher.source, recipe.teacher.revision, "finetune")
    if recipe.student and recipe.student.source:
        yield Named(("student",), recipe.student.source, recipe.student.revision, "distill", "students")
    for path, settings in recipe.distillations():
        for place, further in enumerate(settings.teachers):
            yield Named((*path, "teachers", place), further.source, further.revision, str(path[0]))
        if settings.augment:
            yield Named((*path, "augment", "model"), settings.augment.model, None, str(path[0]))


def origin_problems(recipe: Recipe, cards: Sequence[Path] = ()) -> Iterator[Problem]:
    """Names that lead to no model, whatever machine reads them."""
    for named in named_models(recipe):
        try:
            local = source_kind(named.source, named.kind, cards) == "folder"
            if local:
                model_files(Path(named.source).expanduser())
        except UsageError as error:
            yield Problem(named.path, error.full_message)
            continue
        if local and named.revision is not None:
            yield Problem((*named.path, "revision"), f"{named.source} is a folder, and only the hub has revisions")
    for path, settings in recipe.distillations():
        folder = settings.cross_encoder
        if folder is not None and not Path(folder).expanduser().is_dir():
            yield Problem((*path, "cross_encoder"), f"there is no folder {folder}.")


def absent_models(recipe: Recipe, due: Collection[str], cards: Sequence[Path] = ()) -> Iterator[str]:
    """Models that the steps which are ``due`` need, and that neither this machine nor its hub has."""
    state = cache(hub_state)
    for named in named_models(recipe):
        key = ".".join(map(str, named.path))
        try:
            address = _on_the_hub(named, cards) if named.step in due else None
        except CompressError as error:
            yield f"{key}: {error.full_message}"
            continue
        if address is not None and state() != "reachable":
            name = address.partition("@")[0]
            folder = f"there is no folder {name}, and " if named.source.startswith(name) else ""
            yield (
                f"{key}: {folder}{address} is not on this machine; model hub: {state()} "
                f"(`hf download {name} --local-dir DIR` where it is reachable; then name DIR instead of {named.source})"
            )


def _on_the_hub(named: Named, cards: Sequence[Path]) -> str | None:
    """The address of a model that would have to come from the hub."""
    found = folder_of(
        named.source, named.revision, cards, lambda name, at: cached_checkpoint(name, at) or f"{name}@{at}"
    )
    return found if isinstance(found, str) else None
