"""What leaves this machine: in reports, model cards and published folders no path of it is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compress.data.loading.data_digest import PARTS
from compress.recipe.schema import Recipe

PATH = re.compile(r"(?<![\w/])(?:[A-Za-z]:)?[/\\](?:[\w.+@~-]+[/\\])+([\w.+@~-]*)")
"""An absolute path, of which only the last part may be told."""


def without_paths(text: str) -> str:
    """The text with every absolute path cut to its last part: what is published tells nothing of where it was made."""
    return PATH.sub(r"\1", text)


def pathless(facts: Any) -> Any:
    """Plain facts with every text in them `without_paths`; keys stay as they are."""
    if isinstance(facts, str):
        return without_paths(facts)
    if isinstance(facts, Mapping):
        return {key: pathless(value) for key, value in facts.items()}
    if isinstance(facts, (list, tuple)):
        return [pathless(value) for value in facts]
    return facts


def portable(recipe: Recipe) -> dict[str, Any]:
    """The long form with files and folders by their names alone; hub ids and cards stay as they are."""
    plain = recipe.model_dump(mode="json", exclude={"publish", "track"})
    data = plain["task"]["data"]
    if data["hub"] is None:
        data.update({role: _names(data[role]) for role in PARTS})
    for section in ("teacher", "student"):
        if plain[section]:
            plain[section]["source"] = _name(plain[section]["source"])
    for distilled in (plain["distill"], plain["prune"] and plain["prune"]["recover"]):
        if distilled:
            distilled["cross_encoder"] = _name(distilled["cross_encoder"])
            for further in distilled["teachers"]:
                further["source"] = _name(further["source"])
            if distilled["augment"]:
                distilled["augment"]["model"] = _name(distilled["augment"]["model"])
    return plain


def _names(paths: str | list[str] | None) -> str | list[str] | None:
    return [_name(path) or "" for path in paths] if isinstance(paths, list) else _name(paths)


def _name(source: str | None) -> str | None:
    """A local path's last part; anything that is no path here is a name already."""
    if source is None or not Path(source).expanduser().exists():
        return source
    return Path(source).expanduser().resolve().name
