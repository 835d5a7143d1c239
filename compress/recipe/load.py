"""Loading a recipe: YAML, overrides, the named task, the schema; all problems at once, each with its line."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from compress.errors import Problem, RecipeError, nearest
from compress.recipe.overrides import apply_overrides
from compress.recipe.schema import Recipe
from compress.recipe.schema_lookup import as_written
from compress.recipe.validation_errors import Names, schema_problems
from compress.recipe.yaml_lines import Document, KeyPath, dump_yaml

Tasks = Mapping[str, Mapping[str, Any]]
"""Keys of a recipe's task by the name of a task, or of a kind."""
Check = Callable[[Recipe], Iterable[Problem]]
"""Finds problems of a recipe that the schema cannot see."""

SOURCES = ("hub", "revision", "builtin", "train", "select", "test", "corpus")
"""Keys of task.data that name sources of rows. They belong together: a recipe that gives one replaces them all."""

MAX_BYTES = 1_000_000
"""Far above any recipe; larger files are refused before they are parsed."""

VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def load_recipe(
    path: Path,
    overrides: Sequence[str] = (),
    names: Names | None = None,
    tasks: Tasks | None = None,
    checks: Sequence[Check] = (),
    kinds: Tasks | None = None,
) -> Recipe:
    """Load the recipe at ``path``; its name is the file's unless it has one. See ``parse_recipe``."""
    return parse_recipe(_read(path), str(path), overrides, names, tasks, checks, kinds, default_name=path.stem)


def parse_recipe(
    text: str,
    source: str,
    overrides: Sequence[str] = (),
    names: Names | None = None,
    tasks: Tasks | None = None,
    checks: Sequence[Check] = (),
    kinds: Tasks | None = None,
    default_name: str | None = None,
) -> Recipe:
    """Parse a recipe and apply ``overrides`` to it.

    Args:
        text: the recipe as YAML.
        source: its name in messages.
        overrides: `KEY=VALUE` each.
        names: the tables of valid names.
        tasks: the long forms of named tasks.
        checks: further checks of a recipe that fits the schema.
        kinds: defaults of a task by its kind.
        default_name: the recipe's name where it gives none.

    Raises:
        RecipeError: with every problem found.
    """
    if len(text) > MAX_BYTES:
        raise RecipeError(source, [Problem((), f"is larger than {MAX_BYTES:,} bytes, which no recipe is")])
    document = Document(text)
    problems = list(document.problems)
    raw = document.value
    if not problems and not isinstance(raw, dict):
        what = "is empty" if raw is None else f"is a {type(raw).__name__} where keys and values are expected"
        problems.append(
            Problem((), f"{what}; the minimum is 'task: sst2' and 'teacher: minilm-l6'", None if raw is None else 1)
        )
    if problems:
        raise RecipeError(source, problems)
    raw, changed, problems = apply_overrides(raw, overrides)
    draft = _Draft(raw, document, changed, problems)
    if default_name is not None:
        draft.raw = {"name": default_name, **draft.raw}
    _fill_the_task(draft, tasks or {}, kinds or {})
    _expand_paths(draft)
    return _validated(draft, source, names or {}, checks)


def dump_recipe(recipe: Recipe) -> str:
    """Serialise the long form as YAML, with every default; it parses as the same recipe."""
    return dump_yaml(recipe.model_dump(mode="json"))


class _Draft:
    """A recipe's raw values before validation, and the problems found so far."""

    def __init__(self, raw: dict[str, Any], document: Document, changed: set[KeyPath], problems: list[Problem]) -> None:
        self.raw = raw
        self.problems = problems
        self._document = document
        self._changed = changed

    def add(self, problems: Iterable[Problem]) -> None:
        """Add problems with the line of their key; of several for one key, the first."""
        reported = {problem.path for problem in self.problems}
        for problem in problems:
            path = as_written(self.raw, problem.path)
            if path in reported:
                continue
            if self._from_override(path):
                self.problems.append(Problem(path, f"{problem.message} (given by --set)"))
            else:
                self.problems.append(Problem(path, problem.message, self._document.line(path)))

    def _from_override(self, path: KeyPath) -> bool:
        """Return whether a path was set by an override, or is a section that only overrides created."""
        below = any(path[: len(changed)] == changed for changed in self._changed)
        above = any(changed[: len(path)] == path for changed in self._changed)
        return below or (above and path not in self._document.lines)


def _validated(draft: _Draft, source: str, names: Names, checks: Sequence[Check]) -> Recipe:
    recipe = None
    try:
        recipe = Recipe.model_validate(draft.raw, context=dict(names))
    except ValidationError as error:
        draft.add(schema_problems(error, draft.raw, names))
    if recipe is not None and not draft.problems:
        for check in checks:
            draft.add(check(recipe))
    if draft.problems or recipe is None:
        raise RecipeError(source, sorted(draft.problems, key=lambda problem: (problem.line is None, problem.line or 0)))
    return recipe


def _fill_the_task(draft: _Draft, tasks: Tasks, kinds: Tasks) -> None:
    """Fill in the keys of a named task, and the defaults of its kind, below the recipe's own."""
    given = draft.raw.get("task")
    given = {"name": given} if isinstance(given, str) else given
    if not isinstance(given, Mapping):
        return
    name = given.get("name")
    if isinstance(name, str) and name in tasks:
        draft.raw = {**draft.raw, "task": _of_kind(merged(tasks[name], given), kinds)}
    elif "kind" in given:
        # A task of the user's own that has no name takes the recipe's.
        named = {"name": draft.raw["name"]} if isinstance(draft.raw.get("name"), str) else {}
        draft.raw = {**draft.raw, "task": _of_kind({**named, **given}, kinds)}
    elif isinstance(name, str):
        draft.add(
            [
                Problem(
                    ("task",),
                    f"no task is called '{name[:60]}'{nearest(name, tasks)}; a task of your own needs kind and data",
                )
            ]
        )
        # A placeholder, so that the rest of the recipe is still checked.
        draft.raw = {**draft.raw, "task": next(iter(tasks.values()), {"kind": "classification", "data": {}})}


def _of_kind(task: Mapping[str, Any], kinds: Tasks) -> dict[str, Any]:
    """Return the task with its kind's defaults."""
    kind = task.get("kind")
    return {**(kinds.get(kind, {}) if isinstance(kind, str) else {}), **task}


def merged(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a recipe's keys into a named task; sources of data are replaced together, the rest by key."""
    result = {**base, **given}
    data = given.get("data")
    if isinstance(data, Mapping):
        own = any(data.get(key) is not None for key in SOURCES)
        below = {key: value for key, value in base["data"].items() if not (own and key in SOURCES)}
        result["data"] = {**below, **data}
    if isinstance(given.get("aliases"), Mapping):
        result["aliases"] = {**base.get("aliases", {}), **given["aliases"]}
    return result


def _expand_paths(draft: _Draft) -> None:
    """Expand environment variables and `~` in data paths."""
    task = draft.raw.get("task")
    data = task.get("data") if isinstance(task, Mapping) else None
    if not isinstance(task, Mapping) or not isinstance(data, Mapping) or data.get("hub") is not None:
        return
    expanded = dict(data)
    for role in ("train", "select", "test", "corpus", "unlabelled"):
        entry = data.get(role)
        path = ("task", "data", role)
        if isinstance(entry, str):
            expanded[role] = _expanded(entry, path, draft)
        elif isinstance(entry, list):
            expanded[role] = [_expanded(item, path, draft) if isinstance(item, str) else item for item in entry]
    draft.raw = {**draft.raw, "task": {**task, "data": expanded}}


def _expanded(path: str, key: KeyPath, draft: _Draft) -> str:
    unset = [name for match in VARIABLE.finditer(path) if (name := match[1] or match[2]) not in os.environ]
    if unset:
        draft.add([Problem(key, f"the environment variable {', '.join(unset)} in '{path[:100]}' is not set")])
        return path
    return str(Path(VARIABLE.sub(lambda match: os.environ[match[1] or match[2]], path)).expanduser())


def _read(path: Path) -> str:
    """Return the text of a recipe file, or raise a RecipeError that says why it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        problem = Problem((), f"byte 0x{error.object[error.start]:02x} is not UTF-8", line)
    except IsADirectoryError:
        problem = Problem((), "is a folder where a file is expected")
    except FileNotFoundError:
        nearby = [entry.name for entry in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        problem = Problem((), f"there is no such file{nearest(path.name, nearby)}")
    except OSError as error:
        problem = Problem((), f"cannot be read: {error.strerror or error}")
    raise RecipeError(str(path), [problem])
