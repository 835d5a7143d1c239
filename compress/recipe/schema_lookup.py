"""What the schema says about a key path: known keys, short forms, the values it takes."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

from compress.recipe.field_types import SIZES, UNITS, Known, ShortForm, duration, size, switched
from compress.recipe.loss_schema import Losses
from compress.recipe.yaml_lines import KeyPath

MARKS = (duration, size, switched)
"""What is written beside a type and lets more stand there than the type says."""

PLAIN = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def alternatives(annotation: Any) -> Iterator[Any]:
    """The members of a union, however it is written; else itself (`MARKS` too)."""
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
    """The type that stands at ``path`` below ``annotation``; None where the schema knows no such place."""
    for part in path:
        annotation = next((found for found in _below(annotation, part) if found is not None), None)
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
    """A field's type as it was written: pydantic keeps the marks of an outermost Annotated apart."""
    marks = [mark for mark in field.metadata if mark in MARKS]
    return Annotated[field.annotation, *marks] if marks else field.annotation


def as_written(value: Any, path: KeyPath) -> KeyPath:
    """The path as the recipe ``value`` has it: a loss stands in `losses`, or beside it."""
    found: KeyPath = ()
    while path:
        path = _to_the_loss(value, path)
        found, value, path = (*found, path[0]), _child(value, path[0]), path[1:]
    return found


def _to_the_loss(section: Any, path: KeyPath) -> KeyPath:
    if not isinstance(section, Mapping):
        return path
    within = section.get("losses")
    if path[0] in Losses.model_fields and isinstance(within, Mapping) and path[0] in within:
        return ("losses", *path)
    return path[1:] if path[0] == "losses" and len(path) > 1 and path[1] in section else path


def _child(value: Any, part: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(part)
    return value[part] if isinstance(value, list) and isinstance(part, int) and part < len(value) else None


def is_model(annotation: Any) -> bool:
    """Whether a type is a section of the recipe."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def has_losses(annotation: Any) -> bool:
    """Whether losses may stand beside the keys of a section."""
    return any(is_model(choice) and "losses" in choice.model_fields for choice in alternatives(annotation))


def known_keys(annotation: Any) -> set[str]:
    """The keys of the sections that may stand here."""
    choices = [choice for choice in alternatives(annotation) if is_model(choice)]
    keys = {key for choice in choices for key in choice.model_fields}
    return keys | set(Losses.model_fields) if has_losses(annotation) else keys


def short_key(annotation: Any) -> str | None:
    """The key that a scalar stands for, where a section may be written as one."""
    shorts = [choice for choice in alternatives(annotation) if is_model(choice) and issubclass(choice, ShortForm)]
    return shorts[0].short_key() if shorts else None


def takes_list(annotation: Any) -> bool:
    """Whether a list may stand here."""
    return any(get_origin(choice) is tuple for choice in alternatives(annotation))


def takes_text(annotation: Any, value: str) -> bool:
    """Whether this very text may stand here, as text or as one of the words allowed."""
    for choice in alternatives(annotation):
        if choice is str or (get_origin(choice) is Literal and value in get_args(choice)):
            return True
        if choice == duration and value[-1:] in UNITS:
            return True
        if choice == size and value.endswith(tuple(SIZES)):
            return True
        if get_origin(choice) is tuple and takes_text(get_args(choice)[0], value):
            return True
        if is_model(choice) and issubclass(choice, ShortForm):
            return takes_text(_annotation(choice.model_fields[choice.short_key()]), value)
    return False


def takes_bool(annotation: Any, value: bool) -> bool:
    """Whether true or false may stand here."""
    choices = list(alternatives(annotation))
    if bool in choices or (value and switched in choices):
        return True
    return any(get_origin(choice) is Literal and value in _bools(choice) for choice in choices)


def _bools(literal: Any) -> list[bool]:
    return [word for word in get_args(literal) if isinstance(word, bool)]


def takes_nothing(annotation: Any) -> bool:
    """Whether null is a value here."""
    return type(None) in alternatives(annotation)


def takes_number(annotation: Any) -> bool:
    """Whether a number may stand here."""
    return any(choice in (int, float) or _short_takes_number(choice) for choice in alternatives(annotation))


def _short_takes_number(choice: Any) -> bool:
    short = short_key(choice) if is_model(choice) else None
    return short is not None and takes_number(choice.model_fields[short].annotation)


def described(annotation: Any) -> str:
    """What may stand here, in words: `a whole number or data`."""
    words = list(dict.fromkeys(_words(annotation)))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _words(annotation: Any) -> list[str]:
    words: list[str] = []
    for choice in alternatives(annotation):
        if choice in PLAIN:
            words.append(PLAIN[choice])
        elif choice == duration:
            words.append("a duration such as 30s or 5m")
        elif choice == size:
            words.append("a size such as 500MB or 2GiB")
        elif choice == switched:
            words.append("true")
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
    """The table that names here must stand in, be it one name or a list of them."""
    if isinstance(annotation, AfterValidator) and isinstance(annotation.func, Known):
        return annotation.func.table
    return next(filter(None, map(table, get_args(annotation))), None)
