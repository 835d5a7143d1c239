"""Pydantic's errors as problems of a recipe: key path, what was given, what is expected."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from compress.errors import Problem, nearest, suggestion
from compress.recipe import schema_lookup
from compress.recipe.yaml_lines import KeyPath

OTHER_NAMES = {"gpu": "cuda"}
"""Of words that recipes have, whose letters suggest another one."""
EXPECTED: Mapping[str, str] = {
    "model_type": "a section of keys",
    "mapping_type": "a section of keys",
    "dict_type": "a section of keys",
    "tuple_type": "a list",
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "literal_error": "one of {expected}",
    "too_short": "a list with at least {min_length} item",
}
"""What was expected, by the type of an error. A union has one error for each of its members."""


def schema_problems(error: ValidationError, raw: Any, schema: type[BaseModel]) -> list[Problem]:
    """Return one problem a key path of ``schema``; where all members of a union refused a value, one for the union."""
    by_path: dict[KeyPath, list[Any]] = {}
    for fault in error.errors(include_url=False):
        by_path.setdefault(_written_path(fault, raw), []).append(fault)
    return [
        Problem(path, _message(path, faults, schema))
        for path, faults in by_path.items()
        if not _is_noise(path, faults, by_path)
    ]


def _written_path(fault: Any, raw: Any) -> KeyPath:
    """Return the path as written in the recipe: pydantic's own also names union members and omitted sections."""
    path: KeyPath = ()
    for part in fault["loc"]:
        if schema_lookup.has(raw, part):
            path, raw = (*path, part), raw[part]
        elif fault["type"] == "missing" and part == fault["loc"][-1] and isinstance(raw, Mapping):
            path = (*path, part)
    return path


def _is_noise(path: KeyPath, faults: list[Any], paths: Mapping[KeyPath, Any]) -> bool:
    """Return whether these are errors of the other members of a union whose section or list has errors inside it."""
    is_container = isinstance(faults[0]["input"], (Mapping, list))
    deeper = any(len(other) > len(path) and other[: len(path)] == path for other in paths)
    return is_container and deeper and all(fault["type"] in EXPECTED for fault in faults)


def _message(path: KeyPath, faults: list[Any], schema: type[BaseModel]) -> str:
    # Messages of our own validators, and limits, come before errors of the other members of a union.
    specific = [fault for fault in faults if fault["type"].startswith(("value_error", "greater_than", "less_than"))]
    fault = (specific or [fault for fault in faults if fault["type"] != "missing"] or faults)[0]
    if fault["type"] == "missing":
        return "is missing"
    if fault["type"] == "extra_forbidden":
        return f"unknown key{nearest(str(path[-1])[:60], schema_lookup.keys(schema_lookup.at(schema, path[:-1])))}"
    if fault["loc"][-1:] == ("[key]",):
        return f"unknown key{nearest(str(path[-1])[:60], _expected(fault))}"
    if fault["type"] in EXPECTED:
        return _mismatch(faults)
    message = str(fault["msg"]).removeprefix("Value error, ").replace("Input should be", "should be")
    return message if fault["type"] == "value_error" else f"{message}, got {shown(fault['input'])}"


def _mismatch(faults: list[Any]) -> str:
    """Return `expected a number or data, got 'x'`, with what each member of a union expects."""
    words = list(dict.fromkeys(word for fault in faults if fault["type"] in EXPECTED for word in _expected(fault)))
    expected = " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
    value = faults[0]["input"]
    meant = OTHER_NAMES.get(str(value), str(value)[:60])
    return f"expected {expected}, got {shown(value)}{suggestion(meant, words)}"


def _expected(fault: Any) -> list[str]:
    """Return what one member of a union expects: the words of a Literal, parsed from pydantic's message, or a type."""
    if fault["type"] != "literal_error":
        return [EXPECTED[fault["type"]].format(**fault.get("ctx", {}))]
    words = fault["ctx"]["expected"].replace(" or ", ",").replace("False", "false").split(",")
    return [word.strip(" '") for word in words]


def shown(value: Any) -> str:
    """Format a value as a recipe would write it, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a section of keys"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    return f"'{value[:60]}'" if isinstance(value, str) else str(value)[:60]
