"""``--set a.b=v``: one key of a recipe from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_origin

from pydantic import BaseModel

from compress.errors import Problem
from compress.recipe import schema_lookup
from compress.recipe.field_types import ShortForm
from compress.recipe.loss_schema import Losses
from compress.recipe.yaml_lines import Document, KeyPath


def apply_overrides(
    value: Any, overrides: Sequence[str], schema: type[BaseModel]
) -> tuple[Any, set[KeyPath], list[Problem]]:
    """Apply overrides of keys of ``schema`` in order; return the values, the paths that were set, and the problems."""
    changed: set[KeyPath] = set()
    problems: list[Problem] = []
    for text in overrides:
        try:
            path, new = _parse(text)
            path = schema_lookup.as_written(value, path)
            value = _replace(value, path, new, schema, ())
            changed.add(path)
        except ValueError as error:
            problems.append(Problem(("--set",), str(error)))
    return value, changed, problems


def _parse(text: str) -> tuple[KeyPath, Any]:
    """Return the key path and the value of one override; the value is parsed as YAML."""
    key, sign, value = text.partition("=")
    parts = key.strip().split(".")
    if not sign or not all(parts):
        raise ValueError(f"'{text}' is not an override; expected KEY=VALUE, such as distill.epochs=2")
    document = Document(value)
    if document.problems:
        raise ValueError(f"'{text}': {document.problems[0]}")
    return tuple(int(part) if part.isdigit() else part for part in parts), document.value


def _replace(current: Any, path: KeyPath, new: Any, annotation: Any, done: KeyPath) -> Any:
    """Return a copy of ``current`` with ``new`` at ``path``; sections on the way are created or expanded.

    `null` where null is not valid removes the key.
    """
    if not path:
        return new
    part, rest = path[0], path[1:]
    below = schema_lookup.at(annotation, (part,))
    section = _expanded(current, part, annotation, done)
    if isinstance(section, list):
        if not isinstance(part, int) or part >= len(section):
            name = ".".join(map(str, done))
            raise ValueError(f"'{name}' has {len(section)} items, counted from 0; there is no {name}.{part}")
        return [*section[:part], _replace(section[part], rest, new, below, (*done, part)), *section[part + 1 :]]
    key = str(part)
    if key == "losses" and not rest and below is Losses:  # all of them, however they are written
        section = {name: entry for name, entry in section.items() if name not in Losses.model_fields}
    if new is None and not rest and below is not None and type(None) not in schema_lookup.alternatives(below):
        return {name: entry for name, entry in section.items() if name != key}
    return {**section, key: _replace(section.get(key), rest, new, below, (*done, key))}


def _expanded(current: Any, part: str | int, annotation: Any, done: KeyPath) -> dict[str, Any] | list[Any]:
    """Return the value here as a section or list: short forms are expanded, null becomes an empty section."""
    if isinstance(current, (dict, list)):
        return current
    if isinstance(part, int) and any(get_origin(each) is tuple for each in schema_lookup.alternatives(annotation)):
        return [] if current is None else [current]
    if current is None or isinstance(current, bool):
        return {}
    shorts = [each.short_key for each in schema_lookup.sections(annotation) if issubclass(each, ShortForm)]
    if not shorts:
        raise ValueError(f"'{'.'.join(map(str, done))}' is {current!r} and has no keys below it")
    return {shorts[0]: current}
