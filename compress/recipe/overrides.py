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


class Misplaced(Exception):
    """A key path that leads nowhere; the message says why."""


def split_override(text: str) -> tuple[KeyPath, Any]:
    """The key path and the value of one override; the value is read as YAML."""
    key, sign, value = text.partition("=")
    key = key.strip()
    if not sign or not key or not all(key.split(".")):
        raise Misplaced(f"'{text}' is no override; expected KEY=VALUE, such as distill.epochs=2")
    document = Document(value)
    if document.problems:
        problem = document.problems[0]
        key = ".".join(map(str, problem.path))
        raise Misplaced(
            f"the value of '{text}' is {problem.message}" if not key else f"'{text}': {key} {problem.message}"
        )
    return tuple(int(part) if part.isdigit() else part for part in key.split(".")), document.value


def with_override(value: Any, path: KeyPath, new: Any) -> Any:
    """A copy of the recipe's raw values with ``new`` at ``path``; sections on the way are made or written out.

    `null` where no null can stand takes the key away.
    """
    return _placed(value, path, new, Recipe, ())


def _placed(current: Any, path: KeyPath, new: Any, annotation: Any, done: KeyPath) -> Any:
    if not path:
        return new
    part, rest = path[0], path[1:]
    opened = _opened(current, part, annotation, done)
    below = schema_lookup.at(annotation, (part,))
    if isinstance(opened, list):
        place = _place(part, opened, done)
        return [
            _placed(item, rest, new, below, (*done, place)) if index == place else item
            for index, item in enumerate(opened)
        ]
    key = str(part)
    if key == "losses" and not rest and schema_lookup.has_losses(annotation):  # all of them, wherever they stand
        opened = {name: entry for name, entry in opened.items() if name not in Losses.model_fields}
    if new is None and not rest and below is not None and not schema_lookup.takes_nothing(below):
        return {name: entry for name, entry in opened.items() if name != key}
    child = opened[key] if key in opened else _default(annotation, key, rest)
    return {**opened, key: _placed(child, rest, new, schema_lookup.at(annotation, (key,)), (*done, key))}


def _opened(current: Any, part: str | int, annotation: Any, done: KeyPath) -> dict[str, Any] | list[Any]:
    """What stands here as something with keys or places: a short form is written out, nothing becomes a section."""
    if isinstance(part, int) and schema_lookup.takes_list(annotation) and not isinstance(current, list):
        return [] if current is None else [current]
    if isinstance(current, (dict, list)):
        return current
    if current is None or isinstance(current, bool):
        return {}
    short = schema_lookup.short_key(annotation)
    if short is None:
        raise Misplaced(f"'{'.'.join(map(str, done))}' is {current!r} and has no keys below it")
    return {short: current}


def _place(part: str | int, items: list[Any], done: KeyPath) -> int:
    name = ".".join(map(str, done))
    if not items:
        raise Misplaced(f"'{name}' has no items to set one of; set all of it: {name}=[...]")
    if not isinstance(part, int):
        raise Misplaced(f"'{name}' is a list; count its items from 0, such as {name}.0")
    if part >= len(items):
        raise Misplaced(f"'{name}' has {len(items)} items; there is no {name}.{part}")
    return part


def _default(annotation: Any, key: str, rest: KeyPath) -> Any:
    """The schema's default list where a place in it is set, so that `targets.0.threads=2` finds the default target."""
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
    """The values with every override applied in order, the paths that were set, and what was wrong."""
    changed: set[KeyPath] = set()
    problems: list[Problem] = []
    for text in overrides:
        try:
            path, new = split_override(text)
            path = schema_lookup.as_written(value, path)
            value = with_override(value, path, new)
            changed.add(path)
        except Misplaced as fault:
            problems.append(Problem(("--set",), str(fault)))
    return value, changed, problems
