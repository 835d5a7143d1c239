"""``--set a.b=v``: one key of a recipe from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from compress.errors import Problem
from compress.recipe import schema_lookup
from compress.recipe.loss_schema import Losses
from compress.recipe.schema import Recipe
from compress.recipe.yaml_lines import Document, KeyPath


class InvalidOverride(Exception):
    """An override whose syntax or key path is invalid; the message says why."""


def split_override(text: str) -> tuple[KeyPath, Any]:
    """Return the key path and the value of one override; the value is parsed as YAML."""
    key, sign, value = text.partition("=")
    key = key.strip()
    if not sign or not key or not all(key.split(".")):
        raise InvalidOverride(f"'{text}' is not an override; expected KEY=VALUE, such as distill.epochs=2")
    document = Document(value)
    if document.problems:
        problem = document.problems[0]
        key = ".".join(map(str, problem.path))
        raise InvalidOverride(
            f"the value of '{text}' is {problem.message}" if not key else f"'{text}': {key} {problem.message}"
        )
    return tuple(int(part) if part.isdigit() else part for part in key.split(".")), document.value


def with_override(value: Any, path: KeyPath, new: Any) -> Any:
    """Return a copy of the recipe's raw values with ``new`` at ``path``; sections on the way are created or expanded.

    `null` where null is not valid removes the key.
    """
    return _replace(value, path, new, Recipe, ())


def _replace(current: Any, path: KeyPath, new: Any, annotation: Any, done: KeyPath) -> Any:
    if not path:
        return new
    part, rest = path[0], path[1:]
    section = _expanded(current, part, annotation, done)
    below = schema_lookup.at(annotation, (part,))
    if isinstance(section, list):
        index = _index(part, section, done)
        return [
            _replace(item, rest, new, below, (*done, index)) if position == index else item
            for position, item in enumerate(section)
        ]
    key = str(part)
    if key == "losses" and not rest and schema_lookup.has_losses(annotation):  # all of them, however they are written
        section = {name: entry for name, entry in section.items() if name not in Losses.model_fields}
    if new is None and not rest and below is not None and not schema_lookup.takes_null(below):
        return {name: entry for name, entry in section.items() if name != key}
    child = section[key] if key in section else _default(annotation, key, rest)
    return {**section, key: _replace(child, rest, new, schema_lookup.at(annotation, (key,)), (*done, key))}


def _expanded(current: Any, part: str | int, annotation: Any, done: KeyPath) -> dict[str, Any] | list[Any]:
    """Return the value here as a section or list: short forms are expanded, null becomes an empty section."""
    if isinstance(part, int) and schema_lookup.takes_list(annotation) and not isinstance(current, list):
        return [] if current is None else [current]
    if isinstance(current, (dict, list)):
        return current
    if current is None or isinstance(current, bool):
        return {}
    short = schema_lookup.short_key(annotation)
    if short is None:
        raise InvalidOverride(f"'{'.'.join(map(str, done))}' is {current!r} and has no keys below it")
    return {short: current}


def _index(part: str | int, items: list[Any], done: KeyPath) -> int:
    name = ".".join(map(str, done))
    if not items:
        raise InvalidOverride(f"'{name}' has no items; set the list: {name}=[...]")
    if not isinstance(part, int):
        raise InvalidOverride(f"'{name}' is a list; its items count from 0, such as {name}.0")
    if part >= len(items):
        raise InvalidOverride(f"'{name}' has {len(items)} items; there is no {name}.{part}")
    return part


def _default(annotation: Any, key: str, rest: KeyPath) -> Any:
    """Return the schema's default list where an item of it is set: `targets.0.threads=2` changes the default target."""
    if not (rest and isinstance(rest[0], int)):
        return None
    for choice in schema_lookup.alternatives(annotation):
        if schema_lookup.is_model(choice) and key in choice.model_fields:
            default = choice.model_fields[key].default
            return [_plain(item) for item in default] if isinstance(default, tuple) else None
    return None


def _plain(item: Any) -> Any:
    return item.model_dump(mode="json", exclude_unset=True) if isinstance(item, BaseModel) else item


def apply_overrides(value: Any, overrides: Sequence[str]) -> tuple[Any, set[KeyPath], list[Problem]]:
    """Apply overrides in order; return the values, the paths that were set, and the problems."""
    changed: set[KeyPath] = set()
    problems: list[Problem] = []
    for text in overrides:
        try:
            path, new = split_override(text)
            path = schema_lookup.as_written(value, path)
            value = with_override(value, path, new)
            changed.add(path)
        except InvalidOverride as error:
            problems.append(Problem(("--set",), str(error)))
    return value, changed, problems
