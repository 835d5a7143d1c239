"""YAML to plain values with the line of every key, and back.

Scalars follow YAML 1.2, since version 1.1 surprises people: `5e-5` is a number here, and `no`, `on` and `yes` are
text. A key that is given twice is an error, and tags that would build anything but plain values are refused.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from compress.errors import Problem

KeyPath = tuple[str | int, ...]

MAX_NODES = 20_000
"""Far above any recipe; aliases of aliases can otherwise expand to millions of values."""
MAX_DEPTH = 50

TAG = "tag:yaml.org,2002:"
SCALARS = [
    (TAG + "null", re.compile(r"^(?:~|null|Null|NULL|)$")),
    (TAG + "bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")),
    (TAG + "int", re.compile(r"^[-+]?[0-9]+$")),
    (TAG + "float", re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$")),
]
"""YAML 1.2's core schema, without infinities and octal and hexadecimal numbers, which no recipe needs."""


class _TooLarge(yaml.YAMLError):
    """More values, or more levels of nesting, than any recipe has."""


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {None: SCALARS}  # noqa: RUF012  typed as an instance's by the stubs
    _nodes = _depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        self._nodes += 1
        self._depth += 1
        if self._nodes > MAX_NODES:
            raise _TooLarge(f"holds more than {MAX_NODES:,} values, which no recipe does")
        if self._depth > MAX_DEPTH:
            raise _TooLarge("is nested too deeply to be a recipe")
        node: Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Dumper(yaml.SafeDumper):
    """Quotes what either version of YAML would not parse as text."""

    yaml_implicit_resolvers = {**yaml.SafeDumper.yaml_implicit_resolvers, None: SCALARS}  # noqa: RUF012


class Document:
    """A YAML text as plain values, with the line of each key path and the problems of the text."""

    def __init__(self, text: str) -> None:
        self.value: Any = None
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        self._nodes = 0
        try:
            node = _Loader(text).get_single_node()
            self.value = None if node is None else self._read(node, (), ())
        except _TooLarge as error:
            self.problems.append(Problem((), str(error)))
        except yaml.YAMLError as error:
            self.problems.append(_syntax_problem(error, text))

    def line(self, path: KeyPath) -> int | None:
        """Return the line of ``path``, or of the nearest key above it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def _add_problem(self, path: KeyPath, node: Node, message: str) -> None:
        self.problems.append(Problem(path, message, node.start_mark.line + 1))

    def _read(self, node: Node, path: KeyPath, above: tuple[Node, ...]) -> Any:
        self._nodes += 1
        self.lines.setdefault(path, node.start_mark.line + 1)
        if self._nodes > MAX_NODES or node in above or len(above) > MAX_DEPTH:
            if not any("aliases" in problem.message for problem in self.problems):
                self._add_problem(path, node, "aliases expand to too many values, or contain themselves")
            return None
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if isinstance(node, SequenceNode) and node.tag == f"{TAG}seq":
            return [self._read(item, (*path, index), (*above, node)) for index, item in enumerate(node.value)]
        if isinstance(node, MappingNode) and node.tag == f"{TAG}map":
            return self._mapping(node, path, (*above, node))
        self._add_problem(path, node, f"the tag {_short_tag(node.tag)} is not supported; write plain values")
        return None

    def _mapping(self, node: MappingNode, path: KeyPath, above: tuple[Node, ...]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                self._add_problem(path, key, "a key must be a word")
            elif key.value in values:
                first = self.lines[(*path, key.value)]
                self._add_problem((*path, key.value), key, f"is given twice (first in line {first})")
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
            return _whole({"int": int, "float": float}[kind](text))
        except KeyError:
            self._add_problem(path, node, f"the tag {_short_tag(node.tag)} is not supported; write plain values")
        except ValueError:
            self._add_problem(path, node, f"'{text[:40]}' cannot be parsed as a number")
        return None


def _whole(number: Any) -> Any:
    """Return an int for `1e4` or `3.0`: number fields accept both, and fields of whole numbers only ints."""
    return int(number) if isinstance(number, float) and abs(number) < 2**53 and number == int(number) else number


def dump_yaml(value: Any) -> str:
    """Serialise plain values as YAML that parses as the same values."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)


def _short_tag(tag: str) -> str:
    return tag.replace(TAG, "!!")


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        number = error.problem_mark.line
        message = error.problem or error.context or "it cannot be parsed"
        line = text.splitlines()[number] if number < len(text.splitlines()) else ""
        if "\t" in line[: len(line) - len(line.lstrip())]:
            message = "a tab indents this line; YAML is indented with spaces"
        return Problem((), f"not YAML: {message}", number + 1)
    if isinstance(error, yaml.reader.ReaderError):
        line_number = text[: error.position].count("\n") + 1
        return Problem((), f"not YAML: the character {error.character!r} is not allowed", line_number)
    return Problem((), f"not YAML: {error}")
