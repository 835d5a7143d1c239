"""Removes paths of this machine from what is published: reports, model cards and zoo entries."""

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compress.data.loading.data_digest import PARTS
from compress.model_sources import source_name
from compress.recipe.schema import Recipe

PATH = re.compile(r"(?:(?<![\w/])(?:[A-Za-z]:)?[/\\]|(?<![\w/:])[/\\]{2}|file:///?)(?:[\w.+@~-]+[/\\])+([\w.+@~-]*)")
"""An absolute path, a share of a network, or the address of a file, of which only the last part remains."""

MODEL_KEYS = ("source", "model", "cross_encoder", "latency_table", "service")
"""Recipe keys that name a model (a card, a hub id, or a local folder) or a file."""


def strip_paths(text: str) -> str:
    """The text with every absolute path cut to its last part; what follows a space in a folder's name may stay."""
    for folder in _known_folders():
        text = text.replace(folder, "/known/")
    return PATH.sub(r"\1", text)


def _known_folders() -> list[str]:
    """Return folders whose names may hold spaces, such as a user's, the longest first."""
    folders = {Path.home(), Path.cwd(), Path(tempfile.gettempdir())}
    return sorted((f"{folder}{os.sep}" for folder in folders if len(folder.parts) > 1), key=len, reverse=True)


def strip_paths_deep(value: Any) -> Any:
    """A JSON value with `strip_paths` applied to every text in it; keys are unchanged."""
    if isinstance(value, str):
        return strip_paths(value)
    if isinstance(value, Mapping):
        return {key: strip_paths_deep(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strip_paths_deep(item) for item in value]
    return value


def recipe_without_paths(recipe: Recipe) -> dict[str, Any]:
    """The long form with files and folders by their names alone; hub ids and cards are unchanged."""
    plain: dict[str, Any] = recipe.model_dump(mode="json", exclude={"publish", "track", "probe"})
    data = plain["task"]["data"]
    if data["hub"] is None:
        for role in PARTS:
            paths = data[role]
            data[role] = [source_name(path) for path in paths] if isinstance(paths, list) else source_name(paths)
    if stated := _card_facts(recipe):
        plain["publish"] = stated
    return {**_name_models(plain), "task": plain["task"]}


def _card_facts(recipe: Recipe) -> dict[str, Any]:
    """What the recipe states for the model card; where it is published is no part of the result."""
    facts = recipe.publish.model_dump(mode="json", include={"license", "language"}) if recipe.publish else {}
    return {name: value for name, value in facts.items() if value}


def _name_models(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: source_name(item) if key in MODEL_KEYS else _name_models(item) for key, item in value.items()}
    return [_name_models(item) for item in value] if isinstance(value, list) else value
