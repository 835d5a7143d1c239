"""What the schema allows at a key path: known keys, short forms, and a description of the valid values."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

from compress.recipe.field_types import NameIn, ShortForm, duration, size, switched
from compress.recipe.loss_schema import Losses
from compress.recipe.yaml_lines import KeyPath

MARKS = {duration: "a duration such as 30s or 5m", size: "a size such as 500MB or 2GiB", switched: "true"}
"""Validators that allow more values than the annotated type, with their description."""

PLAIN = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def alternatives(annotation: Any) -> Iterator[Any]:
    """Yield the members of a union, nested ones too, and their `MARKS`; for other types the type itself."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from alternatives(get_args(annotation)[0])
        yield from (mark for mark in get_args(annotation)[1:] if mark in MARKS)
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from alternatives(member)
    else:
        yield annotation


def at(annotation: Any, path: KeyPath) -> Any:
    """Return the type at ``path`` below ``annotation``, or None where the schema has no such key."""
    for part in path:
        annotation = next((below for below in _below(annotation, part) if below is not None), None)
        if annotation is None:
            return None
    return annotation


def _below(annotation: Any, part: str | int) -> Iterator[Any]:
    for choice in alternatives(annotation):
        if is_model(choice) and part in choice.model_fields:
            yield _annotation(choice.model_fields[str(part)])
        elif has_losses(choice) and part in Losses.model_fields:
            yield Losses.model_fields[str(part)].annotation
        elif get_origin(choice) is tuple and isinstance(part, int):
            yield get_args(choice)[0]
        elif get_origin(choice) is Mapping and isinstance(part, str):
            yield get_args(choice)[1]


def _annotation(field: FieldInfo) -> Any:
    """Return a field's type with its marks, which pydantic stores separately."""
    marks = [mark for mark in field.metadata if mark in MARKS]
    return Annotated[field.annotation, *marks] if marks else field.annotation


def as_written(value: Any, path: KeyPath) -> KeyPath:
    """Return the path as it is written in the recipe ``value``: a loss is given in `losses`, or directly."""
    written: KeyPath = ()
    while path:
        path = _to_the_loss(value, path)
        written, value, path = (*written, path[0]), _child(value, path[0]), path[1:]
    return written


def _to_the_loss(section: Any, path: KeyPath) -> KeyPath:
    if not isinstance(section, Mapping):
        return path
    losses = section.get("losses")
    if path[0] in Losses.model_fields and isinstance(losses, Mapping) and path[0] in losses:
        return ("losses", *path)
    return path[1:] if path[0] == "losses" and len(path) > 1 and path[1] in section else path


def _child(value: Any, part: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(part)
    return value[part] if isinstance(value, list) and isinstance(part, int) and part < len(value) else None


def is_model(annotation: Any) -> bool:
    """Return whether a type is a section of the recipe."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def has_losses(annotation: Any) -> bool:
    """Return whether losses may be written directly in a section."""
    return any(is_model(choice) and "losses" in choice.model_fields for choice in alternatives(annotation))


def known_keys(annotation: Any) -> set[str]:
    """Return the keys of the sections that are valid here."""
    keys = {key for choice in alternatives(annotation) if is_model(choice) for key in choice.model_fields}
    return keys | set(Losses.model_fields) if has_losses(annotation) else keys


def short_key(annotation: Any) -> str | None:
    """Return the key that a scalar is the value of, where a section may be written as one."""
    shorts = [choice for choice in alternatives(annotation) if is_model(choice) and issubclass(choice, ShortForm)]
    return shorts[0].short_key() if shorts else None


def takes_list(annotation: Any) -> bool:
    """Return whether a list is valid here."""
    return any(get_origin(choice) is tuple for choice in alternatives(annotation))


def takes_null(annotation: Any) -> bool:
    """Return whether null is valid here."""
    return type(None) in alternatives(annotation)


def described(annotation: Any) -> str:
    """Describe the valid values: `a whole number or data`."""
    words = list(dict.fromkeys(_words(annotation)))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _words(annotation: Any) -> list[str]:
    words: list[str] = []
    for choice in alternatives(annotation):
        if choice in PLAIN:
            words.append(PLAIN[choice])
        elif choice in MARKS:
            words.append(MARKS[choice])
        elif get_origin(choice) is Literal:
            words += [str(word).lower() if isinstance(word, bool) else str(word) for word in get_args(choice)]
        elif get_origin(choice) is tuple:
            words.append("a list")
        elif is_model(choice) or get_origin(choice) is Mapping:
            short = short_key(choice)
            words += _words(_annotation(choice.model_fields[short])) if short else []
            words.append("a section of keys")
    return words


def table(annotation: Any) -> str | None:
    """Return the table that a name here must be in, for one name or a list of them."""
    if isinstance(annotation, AfterValidator) and isinstance(annotation.func, NameIn):
        return annotation.func.table
    return next(filter(None, map(table, get_args(annotation))), None)
