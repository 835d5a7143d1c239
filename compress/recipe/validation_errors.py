"""Pydantic's errors as problems of a recipe: key path, line, what was given, what is expected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from pydantic import ValidationError

from compress.errors import Problem, nearest
from compress.recipe import schema_lookup
from compress.recipe.schema import Recipe
from compress.recipe.yaml_lines import KeyPath

Names = Mapping[str, Collection[str]]


def schema_problems(error: ValidationError, raw: Any, names: Names) -> list[Problem]:
    """Return one problem a key path; where all members of a union refused a value, one for the union."""
    by_path: dict[KeyPath, list[Any]] = {}
    for fault in error.errors(include_url=False):
        by_path.setdefault(_written_path(fault, raw), []).append(fault)
    relevant = {path: faults for path, faults in by_path.items() if not _is_noise(path, faults, by_path, raw)}
    return [Problem(path, _message(path, faults, raw, names)) for path, faults in relevant.items()]


def _written_path(fault: Any, raw: Any) -> KeyPath:
    """Return the path as written in the recipe: pydantic's own also names union members and omitted sections."""
    path: KeyPath = ()
    current = raw
    for part in fault["loc"]:
        if (isinstance(current, Mapping) and part in current) or (
            isinstance(current, list) and isinstance(part, int) and part < len(current)
        ):
            path, current = (*path, part), current[part]
        elif fault["type"] == "missing" and part == fault["loc"][-1]:
            path = (*path, part)
    return path


def _is_noise(path: KeyPath, faults: list[Any], by_path: Mapping[KeyPath, Any], raw: Any) -> bool:
    """Return whether another problem already explains these errors.

    Where a section or list is written, union members of other types fail in addition to the errors inside it.
    Where a section is missing, so are all its keys.
    """
    kinds = {fault["type"] for fault in faults}
    if isinstance(_value_at(raw, path), (Mapping, list)):
        deeper = any(len(other) > len(path) and other[: len(path)] == path for other in by_path)
        return deeper and kinds <= {"literal_error", "too_short", *SHAPES}
    return kinds == {"missing"} and path[:-1] in by_path and not isinstance(_value_at(raw, path[:-1]), Mapping)


def _value_at(raw: Any, path: KeyPath) -> Any:
    """Return the recipe's value at ``path``, None where there is none."""
    for part in path:
        if isinstance(raw, Mapping):
            raw = raw.get(part)
        elif isinstance(raw, list) and isinstance(part, int) and part < len(raw):
            raw = raw[part]
        else:
            return None
    return raw


def _message(path: KeyPath, faults: list[Any], raw: Any, names: Names) -> str:
    # Messages of our own validators come before type errors of other union members; so do limits.
    own = [entry for entry in faults if entry["type"] == "value_error"]
    specific = own or [entry for entry in faults if entry["type"].startswith(("greater_than", "less_than"))]
    fault = (specific or faults)[0]
    if fault["loc"][-1:] == ("[key]",) and fault["type"] == "literal_error":
        return f"unknown key{nearest(str(path[-1])[:60], _allowed(fault))}"
    annotation = schema_lookup.at(Recipe, path)
    mixed = not specific and len({entry["type"] for entry in faults}) > 1 and annotation is not None
    formatter = FORMATTERS.get(fault["type"])
    if formatter is not None and not mixed:
        return formatter(path, fault)
    if mixed or fault["type"] in SHAPES:
        expected = schema_lookup.described(annotation) if annotation is not None else SHAPES[fault["type"]]
        return f"expected {expected}, got {shown(fault['input'])}{_choices(annotation, names)}"
    message = fault["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    return str(message) if fault["type"] == "value_error" else f"{message}, got {shown(fault['input'])}"


def _choices(annotation: Any, names: Names) -> str:
    """List the valid names, where they are those of a table."""
    known = sorted(names.get(schema_lookup.table(annotation) or "", ()))
    return f" (known: {', '.join(known)})" if known else ""


def _unknown_key(path: KeyPath, fault: Any) -> str:
    known = schema_lookup.known_keys(schema_lookup.at(Recipe, path[:-1]) if path[:-1] else Recipe)
    return f"unknown key{nearest(str(path[-1])[:60], known)}"


def _missing(path: KeyPath, fault: Any) -> str:
    annotation = schema_lookup.at(Recipe, path)
    return "is missing" if annotation is None else f"is missing; expected {schema_lookup.described(annotation)}"


def _invalid_choice(path: KeyPath, fault: Any) -> str:
    annotation = schema_lookup.at(Recipe, path)
    words = schema_lookup.described(annotation) if annotation is not None else " or ".join(_allowed(fault))
    guess = nearest(str(fault["input"])[:60], _allowed(fault)).partition(" (known")[0]
    return f"expected {words}, got {shown(fault['input'])}{guess}"


def _allowed(fault: Any) -> list[str]:
    """Return the words of a Literal, parsed from pydantic's message."""
    return [word.strip(" '") for word in str(fault["ctx"]["expected"]).replace(" or ", ",").split(",")]


def _too_few(path: KeyPath, fault: Any) -> str:
    return f"has {fault['ctx']['actual_length']} items; at least {fault['ctx']['min_length']} expected"


def _too_many(path: KeyPath, fault: Any) -> str:
    return f"has {fault['ctx']['actual_length']} items; at most {fault['ctx']['max_length']} expected"


FORMATTERS: Mapping[str, Callable[[KeyPath, Any], str]] = {
    "extra_forbidden": _unknown_key,
    "missing": _missing,
    "literal_error": _invalid_choice,
    "too_short": _too_few,
    "too_long": _too_many,
}

SHAPES: Mapping[str, str] = {
    "model_type": "a section of keys",
    "model_attributes_type": "a section of keys",
    "mapping_type": "a section of keys",
    "dict_type": "a section of keys",
    "tuple_type": "a list",
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
}


def shown(value: Any) -> str:
    """Format a value as a recipe would write it, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a section of keys"
    if isinstance(value, (list, tuple)):
        return "a list"
    return f"'{value[:60]}'" if isinstance(value, str) else str(value)[:60]
