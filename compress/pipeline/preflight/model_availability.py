"""The models that a recipe names: which names lead to no model, and which models are not on this machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

from compress.environment.hub_status import hub_state
from compress.errors import CompressError, Problem, UsageError
from compress.model_sources import cached_checkpoint, folder_of, model_files, source_kind
from compress.recipe.schema import Recipe
from compress.steps import STEPS, distillations
from compress.steps.distillations import models_of_distillation
from compress.steps.model_step import NamedModel

HUB_TIMEOUT = 0.5
"""Seconds to wait for the hub before it counts as unreachable."""


def named_models(recipe: Recipe) -> Iterator[tuple[str, NamedModel]]:
    """Yield every model that a card, a folder or a hub id names, with the model step that needs it first."""
    learnt = dict(distillations(recipe))
    for section, step in STEPS.items():
        models = [*step.named_models(recipe)]
        if step.training in learnt:
            models += models_of_distillation(step.training, learnt[step.training])
        yield from ((section, named) for named in models)


def source_problems(recipe: Recipe, cards: Sequence[Path] = ()) -> Iterator[Problem]:
    """Yield names that lead to no model on any machine."""
    for _, named in named_models(recipe):
        try:
            local = source_kind(named.source, named.kind, cards) == "folder"
            if local:
                model_files(Path(named.source).expanduser())
                if named.revision is not None:
                    reason = f"{named.source} is a folder, and only the hub has revisions"
                    yield Problem((*named.path, "revision"), reason)
        except UsageError as error:
            yield Problem(named.path, error.full_message)
    for path, settings in distillations(recipe):
        folder = settings.cross_encoder
        if folder is not None and not Path(folder).expanduser().is_dir():
            yield Problem((*path, "cross_encoder"), f"there is no folder {folder}.")


def absent_models(recipe: Recipe, sections: Collection[str], cards: Sequence[Path] = ()) -> Iterator[str]:
    """Yield models that the steps of these ``sections`` need and that neither this machine nor its hub has.

    The hub is probed at most once, and only if a model is missing.
    """
    state = cache(lambda: hub_state(HUB_TIMEOUT))

    def cached_or_address(name: str, revision: str) -> Path | str:
        return cached_checkpoint(name, revision) or f"{name}@{revision}"

    for section, named in named_models(recipe):
        if section not in sections:
            continue
        key = ".".join(map(str, named.path))
        try:
            location = folder_of(named.source, named.revision, cards, cached_or_address)
        except CompressError as error:
            yield f"{key}: {error.full_message}"
            continue
        if isinstance(location, str) and state() != "reachable":
            name = location.partition("@")[0]
            folder = f"there is no folder {name}, and " if named.source.startswith(name) else ""
            yield (
                f"{key}: {folder}{location} is not on this machine; model hub: {state()} "
                f"(`hf download {name} --local-dir DIR` where it is reachable; then name DIR instead of {named.source})"
            )
