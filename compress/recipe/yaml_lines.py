"""YAML to plain values with the line of every key, and back.

Scalars follow YAML 1.2, since version 1.1 surprises people: `5e-5` is a number here, and `no`, `on` and `yes` are
text. A key that is given twice is an error, and tags that would build anything but plain values are refused.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from compress.errors import Problem

KeyPath = tuple[str | int, ...]

MAX_VALUES = 20_000
"""Far above any recipe; aliases of aliases can otherwise expand to millions of values."""

TAG = "tag:yaml.org,2002:"
SCALARS = [
    (TAG + "null", re.compile(r"^(?:~|null|Null|NULL|)$")),
    (TAG + "bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")),
    (TAG + "int", re.compile(r"^[-+]?[0-9]+$")),
    (TAG + "float", re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$")),
]
"""YAML 1.2's core schema, without infinities and octal and hexadecimal numbers, which no recipe needs."""


CONVERTERS: Mapping[str, Callable[[str], Any]] = {
    TAG + "str": str,
    TAG + "null": lambda text: None,
    TAG + "bool": lambda text: text.lower() == "true",
    TAG + "int": int,
    TAG + "float": lambda text: _whole(float(text)),
}


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {None: SCALARS}  # noqa: RUF012  typed as an instance's by the stubs


class _Dumper(yaml.SafeDumper):
    """Quotes what either version of YAML would not parse as text."""

    yaml_implicit_resolvers = {**yaml.SafeDumper.yaml_implicit_resolvers, None: SCALARS}  # noqa: RUF012


class Document:
    """A YAML text as plain values, with the line of each key path and the problems of the text."""

    def __init__(self, text: str) -> None:
        self.value: Any = None
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        self._count = 0
        try:
            node = _Loader(text).get_single_node()
            self.value = None if node is None else self._read(node, ())
        except (yaml.YAMLError, RecursionError) as error:
            self.problems.append(_syntax_problem(error, text))

    def line(self, path: KeyPath) -> int | None:
        """Return the line of ``path``, or of the nearest key above it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def _add_problem(self, path: KeyPath, node: Node, message: str) -> None:
        self.problems.append(Problem(path, message, node.start_mark.line + 1))

    def _read(self, node: Node, path: KeyPath) -> Any:
        self._count += 1
        if self._count > MAX_VALUES:
            raise yaml.YAMLError(f"more than {MAX_VALUES:,} values, aliases included, which no recipe has")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, SequenceNode) and node.tag == f"{TAG}seq":
            return [self._read(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, MappingNode) and node.tag == f"{TAG}map":
            return self._mapping(node, path)
        if not isinstance(node, ScalarNode) or node.tag not in CONVERTERS:
            self._add_problem(path, node, f"the tag {node.tag.replace(TAG, '!!')} is not supported; write plain values")
            return None
        try:
            return CONVERTERS[node.tag](node.value)
        except ValueError:
            self._add_problem(path, node, f"'{node.value[:40]}' cannot be parsed as a number")
            return None

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                self._add_problem(path, key, "a key must be a word")
            elif key.value in values:
                first = self.lines[(*path, key.value)]
                self._add_problem((*path, key.value), key, f"is given twice (first in line {first})")
            else:
                self.lines[(*path, key.value)] = key.start_mark.line + 1
                values[key.value] = self._read(value, (*path, key.value))
        return values


def _whole(number: Any) -> Any:
    """Return an int for `1e4` or `3.0`: number fields accept both, and fields of whole numbers only ints."""
    return int(number) if isinstance(number, float) and abs(number) < 2**53 and number == int(number) else number


def dump_yaml(value: Any) -> str:
    """Serialise plain values as YAML that parses as the same values."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)


def _syntax_problem(error: yaml.YAMLError | RecursionError, text: str) -> Problem:
    if isinstance(error, RecursionError):
        return Problem((), "is nested too deeply to be a recipe, or an alias contains itself")
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return Problem((), f"not YAML: {str(error).splitlines()[0]}", line)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return Problem((), f"not YAML: {error.problem or error.context}", error.problem_mark.line + 1)
    return Problem((), f"holds {error}")
