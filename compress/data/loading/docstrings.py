"""Sentences of documentation from a package's source files: read with ``ast``, never imported."""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path

SKIPPED_FOLDERS = frozenset({"test", "tests", "_tests", "testing", "_vendor", "externals", "_external", "__pycache__"})
"""Folders that do not document the library."""

SHORTEST, LONGEST = 6, 40
"""Fewest and most words of a sentence that is used."""

LETTERS = 0.75
"""Least share of letters and spaces, which separates sentences from formulas and tables."""

MARKUP = re.compile(r">>>|-{3}|::|\.\. |https?:|\{\{|\}\}|==|\|\s|^\s*[-*=~#@:]|\\")
"""Signs of code, tables, links and directives: text with one of these is not a plain sentence."""

ROLE = re.compile(r":[\w:+-]+:`~?([^`<]+?)(?:\s*<[^>]*>)?`_{0,2}")
"""Sphinx roles such as :class:`~torch.nn.Linear`, of which the name alone is text."""

CODE = re.compile(r"[a-z][A-Z]|_\w|\w_|\w\.\w|\w\(")
"""Signs of an identifier, which would give the library away like its name."""

SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'`])")


PLAIN_WORDS = ("this",)
"""Modules whose names are ordinary words: sympy has a `this`."""

WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*")


def module_names(root: Path) -> set[str]:
    """Return the names of a package's top modules, in lower case: `linalg`, `pipelines`."""
    modules = [path.stem for path in root.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    return {name.strip("_").lower() for name in modules} - {"", *PLAIN_WORDS}


def mask_names(sentence: str, names: Collection[str], mask: str = "_") -> str:
    """Return the sentence with every word in ``names``, whatever its case, replaced."""
    return WORD.sub(lambda word: mask if word[0].lower() in names else word[0], sentence)


def package_files(root: Path) -> list[Path]:
    """Return the source files of a package in a pseudo-random order that is the same wherever it is installed.

    Taking files in this order samples the whole package even when reading stops early.
    """
    files = [(path.relative_to(root).as_posix(), path) for path in root.rglob("*.py")]
    used = [(name, path) for name, path in files if not SKIPPED_FOLDERS.intersection(Path(name).parts)]
    return [path for _, path in sorted(used, key=lambda entry: hashlib.sha256(entry[0].encode()).digest())]


def docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a file's module, classes and functions, in the order of the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other packages
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return  # template files named .py, for example
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield text


def sentences(docstring: str) -> list[str]:
    """Return the plain sentences of a docstring's prose, in order."""
    plain = []
    for paragraph in docstring.split("\n\n"):
        text = " ".join(ROLE.sub(r"\1", paragraph).replace("`", "").split())
        plain += [sentence for sentence in SENTENCE_END.split(text) if is_plain(sentence)]
    return plain


def is_plain(sentence: str) -> bool:
    """Return whether this is prose of a sensible length that begins and ends like a sentence."""
    if not SHORTEST <= len(sentence.split()) <= LONGEST or not sentence[0].isupper() or sentence[-1] not in ".!?":
        return False
    if MARKUP.search(sentence) or CODE.search(sentence) or not sentence.isascii():
        return False
    return sum(char.isalpha() or char == " " for char in sentence) >= LETTERS * len(sentence)
