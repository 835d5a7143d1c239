"""Where code tells things apart by their names, for tests of what only a table may know."""

import ast
from collections.abc import Iterator


def compared_words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the lines and words of comparisons with texts, of keys of tables, and of cases."""
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            parts = [*node.keys]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        yield from ((node.lineno, word) for part in parts if part is not None for word in members(part))


def members(node: ast.AST) -> Iterator[str]:
    """Yield the text of a constant, or those of a list of constants."""
    for each in node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]:
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value
