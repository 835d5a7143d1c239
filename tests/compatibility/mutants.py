"""Print which share of small faults tests notice, to compare two commits on one machine.

    PYTHONPATH=<checkout> python mutants.py <checkout> compress/select tests/select [--count 60] [--seed 0]

Each fault changes one operator, comparison or constant of the modules in a file or folder of a checkout, which is
written to while this runs. All tests named are run in a process forked for each; a fault is noticed where any fails,
or where they take ten times as long as without one.
"""

import argparse
import ast
import contextlib
import copy
import io
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def changes_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a node may become."""
    if type(operator := getattr(node, "op", None)) in SWAPS:
        changed = copy.deepcopy(node)
        changed.op = SWAPS[type(operator)]()
        yield changed
    for index, operator in enumerate(getattr(node, "ops", ())):
        if type(operator) in SWAPS:
            changed = copy.deepcopy(node)
            changed.ops[index] = SWAPS[type(operator)]()
            yield changed
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)


class Replaced(ast.NodeTransformer):
    """Puts another node in the place of the one with a number, in the order of a walk."""

    def __init__(self, number: int, replacement: ast.AST) -> None:
        self.number, self.replacement = number, replacement

    def visit(self, node: ast.AST) -> ast.AST:
        """Replace the node, or those below it."""
        return self.replacement if getattr(node, "number", None) == self.number else self.generic_visit(node)


def faults_of(path: Path) -> list[tuple[Path, str, int, str]]:
    """Return every fault of a module: its path, its text, the line, and what stands there then."""
    tree, found = ast.parse(path.read_text(encoding="utf-8")), []
    for number, node in enumerate(ast.walk(tree)):
        node.number = number
    for node in list(ast.walk(tree)):
        for changed in changes_of(node) if hasattr(node, "lineno") else ():
            mutant = Replaced(node.number, changed).visit(copy.deepcopy(tree))
            found.append((path, ast.unparse(ast.fix_missing_locations(mutant)), node.lineno, ast.unparse(changed)))
    return found


def fails(tests: list[str], limit: float) -> bool:
    """Whether any of the tests fails, or all take longer than so many seconds."""
    child = os.fork()
    if child == 0:
        signal.alarm(int(limit))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not (slow or browser or wheel)"]
            options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what the parent has imported
            os._exit(int(pytest.main([*tests, *options])))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def main() -> None:
    """Make faults, and count those that are noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("code")
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.chdir(given.checkout)
    sys.dont_write_bytecode = True
    import torch  # noqa: F401  # once for all processes
    import transformers  # noqa: F401

    code = Path(given.code)
    faults = [fault for path in ([code] if code.is_file() else sorted(code.rglob("*.py"))) for fault in faults_of(path)]
    chosen = random.Random(given.seed).sample(faults, min(given.count, len(faults)))
    began = time.monotonic()
    if fails(given.tests, 3600):
        sys.exit("the tests fail without a fault")
    limit, noticed = 10 * (time.monotonic() - began) + 10, 0
    for path, text, line, becomes in chosen:
        original = path.read_text(encoding="utf-8")
        try:
            path.write_text(text, encoding="utf-8")
            if fails(given.tests, limit):
                noticed += 1
            else:
                sys.stdout.write(f"{path}:{line}: {becomes}\n")
        finally:
            path.write_text(original, encoding="utf-8")
    sys.stdout.write(f"{given.code}: {noticed} of {len(chosen)} faults are noticed ({len(faults)} possible)\n")


if __name__ == "__main__":
    main()
