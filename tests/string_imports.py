"""An import-linter contract: layers that also hold for imports written as strings.

Explicit tables name functions as ``"compress.export.builders.onnx:export_onnx"`` and import them when they are called,
which import-linter does not see. This contract adds each such string to the import graph before it checks the layers.
"""

import ast
import re
from importlib.util import find_spec
from pathlib import Path

from grimp import ImportGraph
from importlinter.contracts.layers import LayersContract
from importlinter.domain.contract import ContractCheck

REFERENCE = re.compile(r"(compress(?:\.\w+)+)(?::\w+)?")
"""``package.module:function``, or the module that a subprocess runs."""


class LayersWithStrings(LayersContract):
    """`layers`, with ``module:function`` strings counted as imports."""

    type_name = "layers_with_strings"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Add the strings to the graph, then check the layers."""
        for importer in sorted(graph.find_descendants("compress")):
            for line, text, imported in string_imports(importer):
                if imported in graph.modules and imported != importer:
                    graph.add_import(importer=importer, imported=imported, line_number=line, line_contents=text)
        return super().check(graph, verbose)


def string_imports(module: str) -> list[tuple[int, str, str]]:
    """Return the line, the string and the module of each reference to our modules in ``module``'s string constants."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return []
    constants = (
        node for node in ast.walk(ast.parse(Path(spec.origin).read_text("utf-8"))) if isinstance(node, ast.Constant)
    )
    matches = ((node, REFERENCE.fullmatch(node.value)) for node in constants if isinstance(node.value, str))
    return [(node.lineno, node.value, match[1]) for node, match in matches if match]
