"""What the schema allows at a key path of a recipe: its sections, their keys, and the types of those."""

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from compress.recipe.loss_schema import Losses
from compress.recipe.yaml_lines import KeyPath


def alternatives(annotation: Any) -> Iterator[Any]:
    """Yield the members of a union, of nested ones too, without their validators; for other types the type itself."""
    if get_origin(annotation) is Annotated:
        yield from alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from alternatives(member)
    else:
        yield annotation


def sections(annotation: Any) -> list[type[BaseModel]]:
    """Return the sections that are valid here."""
    return [each for each in alternatives(annotation) if isinstance(each, type) and issubclass(each, BaseModel)]


def keys(annotation: Any) -> dict[str, Any]:
    """Return the type of each key that is valid here; losses may also be written directly in a section.

    Those of a list's items too, of which a single one may be written without the list.
    """
    lists = [each for each in alternatives(annotation) if get_origin(each) is tuple]
    models = [*sections(annotation), *(model for each in lists for model in sections(get_args(each)[0]))]
    models += [Losses for model in models if "losses" in model.model_fields]
    return {field.alias or key: field.annotation for model in models for key, field in model.model_fields.items()}


def at(annotation: Any, path: KeyPath) -> Any:
    """Return the type at ``path`` below ``annotation``, or None where the schema has no such key."""
    for part in path:
        lists = [each for each in alternatives(annotation) if get_origin(each) is tuple]
        annotation = get_args(lists[0])[0] if isinstance(part, int) and lists else keys(annotation).get(str(part))
    return annotation


def has(value: Any, part: str | int) -> bool:
    """Return whether the recipe's ``value`` is a section with this key, or a list with this item."""
    if isinstance(value, Mapping):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and part < len(value)


def as_written(value: Any, path: KeyPath) -> KeyPath:
    """Return the path as it is written in the recipe ``value``: a loss is given in `losses`, or directly."""
    if not path:
        return ()
    if path[0] in Losses.model_fields and has(value, "losses") and has(value["losses"], path[0]):
        return ("losses", *path)
    if path[0] == "losses" and len(path) > 1 and has(value, path[1]):
        return path[1:]
    return (path[0], *as_written(value[path[0]] if has(value, path[0]) else None, path[1:]))
