"""What pydantic found wrong, told in the recipe's own words: key path, line, what was there, what was expected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from compress.errors import Problem, nearest
from compress.recipe import schema_lookup
from compress.recipe.schema import Recipe
from compress.recipe.yaml_lines import KeyPath

Names = Mapping[str, Collection[str]]


def wrong_scalars(value: Any, path: KeyPath = ()) -> Iterator[Problem]:
    """Scalars of the wrong type that pydantic would quietly convert: `epochs: true`, `threads: "2"`, `strict: 1`."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from wrong_scalars(entry, (*path, key))
    elif isinstance(value, list):
        for place, entry in enumerate(value):
            yield from wrong_scalars(entry, (*path, place))
    else:
        annotation = schema_lookup.at(Recipe, path)
        if annotation is not None and _would_convert(value, annotation):
            yield Problem(path, f"expected {schema_lookup.described(annotation)}, got {shown(value)}")


def _would_convert(value: Any, annotation: Any) -> bool:
    number, flag = schema_lookup.takes_number(annotation), bool in schema_lookup.alternatives(annotation)
    if isinstance(value, bool):
        return number and not schema_lookup.takes_bool(annotation, value)
    if isinstance(value, str):
        return (number or flag) and not schema_lookup.takes_text(annotation, value)
    return isinstance(value, (int, float)) and flag and not number


def schema_problems(error: ValidationError, raw: Any, names: Names) -> list[Problem]:
    """One problem a key path; the members of a union that all refused a value are told as one."""
    found: dict[KeyPath, list[Any]] = {}
    for fault in error.errors(include_url=False):
        found.setdefault(_real_path(fault, raw), []).append(fault)
    kept = {path: faults for path, faults in found.items() if not _is_noise(path, faults, found, raw)}
    return [Problem(path, _told(path, faults, raw, names)) for path, faults in kept.items()]


def _real_path(fault: Any, raw: Any) -> KeyPath:
    """The path in the recipe as written: pydantic's own also names union members and unwritten sections."""
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


def _is_noise(path: KeyPath, faults: list[Any], found: Mapping[KeyPath, Any], raw: Any) -> bool:
    """Whether the fault that matters is told elsewhere.

    Where a section or list is written, the members of the union that are none complain beside the faults within it.
    Where a section is missing altogether, so are all its keys.
    """
    kinds = {fault["type"] for fault in faults}
    if isinstance(_written(raw, path), (Mapping, list)):
        deeper = any(len(other) > len(path) and other[: len(path)] == path for other in found)
        return deeper and kinds <= {"literal_error", "too_short", *SHAPES}
    return kinds == {"missing"} and path[:-1] in found and not isinstance(_written(raw, path[:-1]), Mapping)


def _written(raw: Any, path: KeyPath) -> Any:
    """What stands at ``path`` in the recipe, None where nothing does."""
    for part in path:
        if isinstance(raw, Mapping):
            raw = raw.get(part)
        elif isinstance(raw, list) and isinstance(part, int) and part < len(raw):
            raw = raw[part]
        else:
            return None
    return raw


def _told(path: KeyPath, faults: list[Any], raw: Any, names: Names) -> str:
    # Our own words come before those of union members that refused the value for its type; limits do too.
    own = [entry for entry in faults if entry["type"] == "value_error"]
    telling = own or [entry for entry in faults if entry["type"].startswith(("greater_than", "less_than"))]
    fault = (telling or faults)[0]
    if fault["loc"][-1:] == ("[key]",) and fault["type"] == "literal_error":
        return f"unknown key{nearest(str(path[-1]), _allowed(fault))}"
    annotation = schema_lookup.at(Recipe, path)
    if not telling and len({entry["type"] for entry in faults}) > 1 and annotation is not None:
        return (
            f"expected {schema_lookup.described(annotation)}, got {shown(fault['input'])}{_choices(annotation, names)}"
        )
    say = WORDS.get(fault["type"])
    if say is not None:
        return say(path, fault, names)
    if fault["type"] in SHAPES:
        expected = schema_lookup.described(annotation) if annotation is not None else SHAPES[fault["type"]]
        return f"expected {expected}, got {shown(fault['input'])}{_choices(annotation, names)}"
    message = fault["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    return str(message) if fault["type"] == "value_error" else f"{message}, got {shown(fault['input'])}"


def _choices(annotation: Any, names: Names) -> str:
    """The names that may stand here, where they are of a table."""
    known = sorted(names.get(schema_lookup.table(annotation) or "", ()))
    return f" (known: {', '.join(known)})" if known else ""


def _unknown_key(path: KeyPath, fault: Any, names: Names) -> str:
    known = schema_lookup.known_keys(schema_lookup.at(Recipe, path[:-1]) if path[:-1] else Recipe)
    return f"unknown key{nearest(str(path[-1]), known)}"


def _missing(path: KeyPath, fault: Any, names: Names) -> str:
    annotation = schema_lookup.at(Recipe, path)
    return "is missing" if annotation is None else f"is missing; expected {schema_lookup.described(annotation)}"


def _not_a_word(path: KeyPath, fault: Any, names: Names) -> str:
    annotation = schema_lookup.at(Recipe, path)
    words = schema_lookup.described(annotation) if annotation is not None else " or ".join(_allowed(fault))
    guess = nearest(str(fault["input"]), _allowed(fault)).partition(" (known")[0]
    return f"expected {words}, got {shown(fault['input'])}{guess}"


def _allowed(fault: Any) -> list[str]:
    """The words of a Literal, out of pydantic's sentence about them."""
    return [word.strip(" '") for word in str(fault["ctx"]["expected"]).replace(" or ", ",").split(",")]


def _too_few(path: KeyPath, fault: Any, names: Names) -> str:
    return f"has {fault['ctx']['actual_length']} items; at least {fault['ctx']['min_length']} expected"


def _too_many(path: KeyPath, fault: Any, names: Names) -> str:
    return f"has {fault['ctx']['actual_length']} items; at most {fault['ctx']['max_length']} expected"


WORDS: Mapping[str, Callable[[KeyPath, Any, Names], str]] = {
    "extra_forbidden": _unknown_key,
    "missing": _missing,
    "literal_error": _not_a_word,
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
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}


def shown(value: Any) -> str:
    """A value as the recipe would write it, short."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a section of keys"
    if isinstance(value, (list, tuple)):
        return "a list"
    return f"'{value[:60]}'" if isinstance(value, str) else str(value)[:60]
