"""YAML to plain values with the line of every key, and back.

Scalars are read as YAML 1.2 has it, since version 1.1 surprises people: `5e-5` is a number here, and `no`, `on` and
`yes` are text. A key that stands twice is an error, and tags that would build anything but plain values are refused.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from compress.errors import Problem

KeyPath = tuple[str | int, ...]

MOST_NODES = 20_000
"""Far above any recipe; aliases of aliases can otherwise unfold into millions of values."""

TAG = "tag:yaml.org,2002:"
SCALARS = [
    (TAG + "null", re.compile(r"^(?:~|null|Null|NULL|)$")),
    (TAG + "bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")),
    (TAG + "int", re.compile(r"^[-+]?[0-9]+$")),
    (TAG + "float", re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$")),
]
"""YAML 1.2's core schema, less what no recipe holds (infinities, octal and hexadecimal numbers)."""


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {None: SCALARS}  # noqa: RUF012  typed as an instance's by the stubs


class _Dumper(yaml.SafeDumper):
    """Quotes what either version of YAML would not read back as text."""

    yaml_implicit_resolvers = {**yaml.SafeDumper.yaml_implicit_resolvers, None: SCALARS}  # noqa: RUF012


class Document:
    """A YAML text as plain values, the line of each key path, and what was wrong with it."""

    def __init__(self, text: str) -> None:
        self.value: Any = None
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        self._nodes = 0
        try:
            node = _Loader(text).get_single_node()
            self.value = None if node is None else self._read(node, (), ())
        except yaml.YAMLError as error:
            self.problems.append(_syntax_problem(error, text))
        except RecursionError:
            self.problems.append(Problem((), "is nested too deeply to be a recipe"))

    def line(self, path: KeyPath) -> int | None:
        """The line of ``path``, or of the nearest key above it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def _fault(self, path: KeyPath, node: Node, message: str) -> None:
        self.problems.append(Problem(path, message, node.start_mark.line + 1))

    def _read(self, node: Node, path: KeyPath, above: tuple[Node, ...]) -> Any:
        self._nodes += 1
        self.lines.setdefault(path, node.start_mark.line + 1)
        if self._nodes > MOST_NODES or node in above:
            if self._nodes <= MOST_NODES or not any("unfold" in problem.message for problem in self.problems):
                self._fault(path, node, "aliases unfold into too many values, or into themselves")
            return None
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if isinstance(node, SequenceNode) and node.tag == f"{TAG}seq":
            return [self._read(item, (*path, place), (*above, node)) for place, item in enumerate(node.value)]
        if isinstance(node, MappingNode) and node.tag == f"{TAG}map":
            return self._mapping(node, path, (*above, node))
        self._fault(path, node, f"the tag {_short(node.tag)} is not read; write plain values")
        return None

    def _mapping(self, node: MappingNode, path: KeyPath, above: tuple[Node, ...]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                self._fault(path, key, "a key must be a word")
            elif key.value in values:
                first = self.lines[(*path, key.value)]
                self._fault((*path, key.value), key, f"stands here twice (first in line {first})")
            else:
                self.lines[(*path, key.value)] = key.start_mark.line + 1
                values[key.value] = self._read(value, (*path, key.value), above)
        return values

    def _scalar(self, node: ScalarNode, path: KeyPath) -> Any:
        text = node.value
        kind = node.tag.removeprefix(TAG)
        try:
            if kind == "str":
                return text
            if kind == "null":
                return None
            if kind == "bool":
                return {"true": True, "false": False}[text.lower()]
            return {"int": int, "float": float}[kind](text)
        except KeyError:
            self._fault(path, node, f"the tag {_short(node.tag)} is not read; write plain values")
        except ValueError:
            self._fault(path, node, f"'{text[:40]}' cannot be read as a number")
        return None


def dump_yaml(value: Any) -> str:
    """Plain values as YAML that reads back as the same values."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)


def _short(tag: str) -> str:
    return tag.replace(TAG, "!!")


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        number = error.problem_mark.line
        told = error.problem or error.context or "it cannot be read"
        line = text.splitlines()[number] if number < len(text.splitlines()) else ""
        if "\t" in line[: len(line) - len(line.lstrip())]:
            told = "a tab indents this line; YAML is indented with spaces"
        return Problem((), f"not YAML: {told}", number + 1)
    if isinstance(error, yaml.reader.ReaderError):
        line_number = text[: error.position].count("\n") + 1
        return Problem((), f"not YAML: the character {error.character!r} cannot stand in it", line_number)
    return Problem((), f"not YAML: {error}")
