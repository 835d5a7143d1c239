"""Reading a recipe: YAML, overrides, the named task under it, the schema; all faults at once, each with its line."""

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
from compress.recipe.validation_errors import Names, schema_problems, wrong_scalars
from compress.recipe.yaml_lines import Document, KeyPath, dump_yaml

Tasks = Mapping[str, Mapping[str, Any]]
"""Parts of a recipe's task by the name of a task, or of a kind."""
Check = Callable[[Recipe], Iterable[Problem]]
"""Finds what only another room can know to be wrong with a recipe that fits the schema."""

SOURCES = ("hub", "revision", "builtin", "train", "select", "test", "corpus")
"""Keys of task.data that say where rows come from. They belong together: a recipe that gives one replaces them all."""

VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def load_recipe(
    path: Path,
    overrides: Sequence[str] = (),
    names: Names | None = None,
    tasks: Tasks | None = None,
    checks: Sequence[Check] = (),
    kinds: Tasks | None = None,
) -> Recipe:
    """Read the recipe at ``path``; its name is the file's unless it has one. See ``parse_recipe``."""
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
    """The recipe that ``text`` holds once ``overrides`` are applied, or a RecipeError with every fault in it.

    ``names`` are the tables that names must stand in, ``tasks`` the long forms of named tasks, ``kinds`` what a task of
    a kind leaves out, ``checks`` what else may find faults; ``source`` is only for messages.
    """
    document = Document(text)
    problems = list(document.problems)
    raw = document.value
    if not problems and not isinstance(raw, dict):
        told = "is empty" if raw is None else f"is a {type(raw).__name__} where keys and values are expected"
        problems.append(
            Problem((), f"{told}; the least is 'task: sst2' and 'teacher: minilm-l6'", None if raw is None else 1)
        )
    if problems:
        raise RecipeError(source, problems)
    raw, changed, faults = apply_overrides(raw, overrides)
    draft = _Draft(raw, document, changed, faults)
    if default_name is not None:
        draft.raw = {"name": default_name, **draft.raw}
    _fill_the_task(draft, tasks or {}, kinds or {})
    _expand_paths(draft)
    return _validated(draft, source, names or {}, checks)


def dump_recipe(recipe: Recipe) -> str:
    """The long form as YAML, every default in sight; it reads back as the same recipe."""
    return dump_yaml(recipe.model_dump(mode="json"))


class _Draft:
    """A recipe's raw values on their way to the schema, and the faults found so far."""

    def __init__(self, raw: dict[str, Any], document: Document, changed: set[KeyPath], problems: list[Problem]) -> None:
        self.raw = raw
        self.problems = problems
        self._document = document
        self._changed = changed

    def add(self, problems: Iterable[Problem]) -> None:
        """Take problems, with the line each key stands in; one that is already told is not told again."""
        told = {problem.path for problem in self.problems}
        for problem in problems:
            path = as_written(self.raw, problem.path)
            if path in told:
                continue
            if self._from_override(path):
                self.problems.append(Problem(path, f"{problem.message} (given by --set)"))
            else:
                self.problems.append(Problem(path, problem.message, self._document.line(path)))

    def _from_override(self, path: KeyPath) -> bool:
        """Whether a path, or a section that stands in no file, came with an override."""
        below = any(path[: len(changed)] == changed for changed in self._changed)
        above = any(changed[: len(path)] == path for changed in self._changed)
        return below or (above and path not in self._document.lines)


def _validated(draft: _Draft, source: str, names: Names, checks: Sequence[Check]) -> Recipe:
    draft.add(wrong_scalars(draft.raw))
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
    """Put a named task's long form, and what its kind leaves out, under what the recipe says of it."""
    given = draft.raw.get("task")
    given = {"name": given} if isinstance(given, str) else given
    if not isinstance(given, Mapping):
        return
    name = given.get("name")
    if isinstance(name, str) and name in tasks:
        draft.raw = {**draft.raw, "task": _of_kind(merged(tasks[name], given), kinds)}
    elif "kind" in given:
        # A task of one's own that has no name is called as its recipe is.
        called = {"name": draft.raw["name"]} if isinstance(draft.raw.get("name"), str) else {}
        draft.raw = {**draft.raw, "task": _of_kind({**called, **given}, kinds)}
    elif isinstance(name, str):
        draft.add(
            [
                Problem(
                    ("task",), f"no task is called '{name}'{nearest(name, tasks)}; one of your own needs kind and data"
                )
            ]
        )
        # With its parts unknown, the rest of the recipe is still checked: this stands in for the task.
        draft.raw = {**draft.raw, "task": next(iter(tasks.values()), {"kind": "classification", "data": {}})}


def _of_kind(task: Mapping[str, Any], kinds: Tasks) -> dict[str, Any]:
    """A task with what its kind means by what is left out."""
    kind = task.get("kind")
    return {**(kinds.get(kind, {}) if isinstance(kind, str) else {}), **task}


def merged(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A named task with what the recipe says laid over it; sources of data are replaced together, the rest by key."""
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
    """Put the values of environment variables, and the home folder, into data paths."""
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
        draft.add([Problem(key, f"the environment has no {', '.join(unset)}, which '{path}' needs")])
        return path
    return str(Path(VARIABLE.sub(lambda match: os.environ[match[1] or match[2]], path)).expanduser())


def _read(path: Path) -> str:
    """The text of a recipe file, or a RecipeError that says why there is none."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        problem = Problem((), f"byte 0x{error.object[error.start]:02x} is not UTF-8", line)
    except IsADirectoryError:
        problem = Problem((), "is a folder where a file is expected")
    except FileNotFoundError:
        beside = [entry.name for entry in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        problem = Problem((), f"there is no such file{nearest(path.name, beside)}")
    except OSError as error:
        problem = Problem((), f"cannot be read: {error.strerror or error}")
    raise RecipeError(str(path), [problem])
