"""Loading a recipe: YAML, overrides, the named task, the schema; all problems at once, each with its line.

An override, ``--set a.b=v``, is one key of a recipe from the command line.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError

from compress.errors import Problem, RecipeError, UsageError, nearest_file
from compress.recipe import schema_lookup
from compress.recipe.field_types import RecipeFile, RecipeKind, ShortForm, other_kind
from compress.recipe.loss_schema import Losses
from compress.recipe.schema import Recipe
from compress.recipe.schema_lookup import as_written, has
from compress.recipe.validation_errors import schema_problems
from compress.recipe.yaml_lines import Document, KeyPath, dump_yaml
from compress.storage.file_names import file_name_like

Names = Mapping[str, Collection[str]]
"""The names that are valid, and the keys of tasks (`NAMED_TASKS`, `KIND_DEFAULTS`): the schema's validation context."""
Schema = TypeVar("Schema", bound=RecipeFile)
Check = Callable[[Recipe], Iterable[Problem]]
"""Finds problems of a recipe that the schema cannot see."""

MAX_BYTES = 300_000
"""Far above any recipe; larger files are refused before they are parsed."""


def load_recipe(
    path: Path,
    overrides: Sequence[str] = (),
    names: Names | None = None,
    checks: Sequence[Check] = (),
    section_checks: Sequence[Check] = (),
) -> Recipe:
    """Load the recipe at ``path``; its name is the file's unless it has one. See ``parse_recipe``."""
    return load_as(Recipe, path, overrides, names, checks, section_checks)


def load_as(
    schema: type[Schema],
    path: Path,
    overrides: Sequence[str] = (),
    names: Names | None = None,
    checks: Sequence[Callable[[Schema], Iterable[Problem]]] = (),
    section_checks: Sequence[Callable[[Schema], Iterable[Problem]]] = (),
) -> Schema:
    """Load the file at ``path`` as ``schema``; its name is the file's unless it has one. See ``parse_as``."""
    name = file_name_like(path.stem)
    return parse_as(schema, _read(path), str(path), overrides, names, checks, name, section_checks)


def parse_recipe(
    text: str,
    source: str,
    overrides: Sequence[str] = (),
    names: Names | None = None,
    checks: Sequence[Check] = (),
    default_name: str | None = None,
    section_checks: Sequence[Check] = (),
) -> Recipe:
    """Parse a recipe of `compress run`; see ``parse_as``."""
    return parse_as(Recipe, text, source, overrides, names, checks, default_name, section_checks)


def parse_as(
    schema: type[Schema],
    text: str,
    source: str,
    overrides: Sequence[str] = (),
    names: Names | None = None,
    checks: Sequence[Callable[[Schema], Iterable[Problem]]] = (),
    default_name: str | None = None,
    section_checks: Sequence[Callable[[Schema], Iterable[Problem]]] = (),
) -> Schema:
    """Parse a recipe and apply ``overrides`` to it.

    Args:
        schema: the model of the whole file.
        text: the recipe as YAML.
        source: its name in messages.
        overrides: `KEY=VALUE` each.
        names: tables of valid names, and of the keys of tasks.
        checks: further checks of a recipe that fits the schema.
        default_name: the recipe's name where it gives none.
        section_checks: further checks that read single sections, whatever the others hold: they are made of the rest of
            a recipe that does not fit the schema too.

    Raises:
        RecipeError: with every problem found.
    """
    if len(text) > MAX_BYTES:
        raise RecipeError(source, [Problem((), f"is larger than {MAX_BYTES:,} bytes, which no recipe is")])
    document = Document(text)
    problems = list(document.problems)
    if not problems and not isinstance(document.value, dict):
        minimum = " and ".join(f"'{key}: {value}'" for key, value in schema.minimum.items())
        problems.append(Problem((), f"has no keys; the minimum is {minimum}"))
    if problems:
        raise RecipeError(source, problems)
    if other := other_kind(document.value, schema.recipe_kind):
        raise UsageError(f"{source} is {other.title}.", hint=f"{other.command} {source}")
    raw, changed, problems = apply_overrides(document.value, overrides, schema)
    if default_name is not None:
        raw = {"name": default_name, **raw}
    recipe, unlocated = None, list[Problem]()
    try:
        recipe = schema.model_validate(raw, context=names or {})
    except ValidationError as error:
        unlocated = schema_problems(error, raw, schema)
    if recipe is not None and not problems:
        unlocated = [problem for check in (*checks, *section_checks) for problem in check(recipe)]
    elif section_checks:
        wrong = [problem.path for problem in (*unlocated, *problems)]
        unlocated += _problems_of_the_rest(raw, wrong, schema, names or {}, section_checks)
    problems += [_located(problem, raw, document, changed) for problem in unlocated]
    if recipe is None or problems:
        raise RecipeError(source, sorted(problems, key=lambda problem: (problem.line is None, problem.line or 0)))
    return recipe


def _problems_of_the_rest(
    raw: dict[str, Any],
    wrong: Sequence[KeyPath],
    schema: type[Schema],
    names: Names,
    checks: Sequence[Callable[[Schema], Iterable[Problem]]],
) -> list[Problem]:
    """Return what ``checks`` find in a recipe without the keys at ``wrong``, or without the sections that hold them.

    Required sections are replaced by their shortest form, about which nothing is reported.
    """
    written = [as_written(raw, path) for path in wrong]
    for depth in (None, 1):  # the keys alone, then whole sections
        rest: dict[str, Any] = deepcopy(raw)
        for path in written:
            _remove(rest, path[:depth])
        replaced = schema.minimum.keys() - rest.keys()
        try:
            recipe = schema.model_validate({**schema.minimum, **rest}, context=names)
        except ValidationError:
            continue
        found = [problem for check in checks for problem in check(recipe)]
        # A key that is missing where another is unknown may be the one that was meant.
        beside = {path[:-1] for path in written}
        return [
            each
            for each in found
            if replaced.isdisjoint(each.path[:1])
            and each.path not in wrong
            and (each.path[:-1] not in beside or _is_given(raw, each.path))
        ]
    return []


def _is_given(raw: Any, path: KeyPath) -> bool:
    """Return whether the recipe has a value at ``path``."""
    return not path or (has(raw, path[0]) and _is_given(raw[path[0]], path[1:]))


def _remove(section: Any, path: KeyPath) -> None:
    """Remove the value at ``path``, or the innermost section that exists on the way to it."""
    if len(path) > 1 and has(section, path[0]) and has(section[path[0]], path[1]):
        _remove(section[path[0]], path[1:])
    elif path and has(section, path[0]):
        del section[path[0]]


def is_of_kind(path: Path, kind: RecipeKind) -> bool:
    """Return whether a file can be read as YAML and has the key that only files of this kind have."""
    keys = Document(_read(path)).value if path.is_file() else None
    return isinstance(keys, dict) and kind.key in keys


def dump_recipe(recipe: RecipeFile) -> str:
    """Serialise the long form as YAML, with every default; it parses as the same recipe."""
    return dump_yaml(recipe.model_dump(mode="json"))


def _located(problem: Problem, raw: Any, document: Document, changed: Iterable[KeyPath]) -> Problem:
    """Add the line of a problem's key; or say that an override set the key, or created the section that holds it."""
    path = as_written(raw, problem.path)
    below = any(path[: len(each)] == each for each in changed)
    above = any(each[: len(path)] == path for each in changed)
    if below or (above and path not in document.lines):
        return Problem(path, f"{problem.message} (given on the command line)")
    line = document.line(path) if path else None  # what is about several keys is in none
    return Problem(path, problem.message, line)


def _read(path: Path) -> str:
    """Return the text of a recipe file, or raise a RecipeError that says why it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        problem = Problem((), f"byte 0x{error.object[error.start]:02x} is not UTF-8", line)
    except FileNotFoundError:
        nearby = [entry.name for entry in path.parent.glob("[!.]*.y*ml")] if path.parent.is_dir() else []
        problem = Problem((), f"there is no such file{nearest_file(path, nearby)}")
    except OSError as error:
        problem = Problem((), f"cannot be read: {error.strerror or error}")
    raise RecipeError(str(path), [problem])


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
    if not value.strip():
        raise ValueError(f"'{text}' has no value; {key.strip()}=null removes a key")
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
