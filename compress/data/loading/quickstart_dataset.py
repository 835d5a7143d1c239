"""The quickstart's data: sentences of documentation, classified by the library that they document.

It needs no download: the sentences are docstrings of libraries that are installed with compress, read from their source
files without importing them. Names of the libraries and of their modules are masked, and sentences with identifiers are
left out. The same package versions give the same rows in the same order; they are collected once and cached.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import metadata
from itertools import zip_longest
from pathlib import Path

from compress.console import Console
from compress.data.loading.data_digest import BUILTIN_SOURCES, BUILTIN_VERSION, source_versions
from compress.errors import DataError
from compress.storage.atomic_write import atomic_write
from compress.storage.cache_folder import cache_folder
from compress.tasks.base import RawRow

ROWS_PER_CLASS = 1500
"""Sentences of each library, fewer where it has no more."""

NICKNAMES = frozenset({"np", "pd", "nx", "pytorch", "scikit", "hugging", "face", "huggingface"})
"""Other names of the libraries, masked too."""

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


def builtin_rows(name: str, console: Console | None = None) -> Iterator[RawRow]:
    """Yield the rows of a builtin set, collected first if they are not cached for these package versions."""
    path = builtin_file(name, console or Console("quiet"))
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            yield RawRow(f"builtin {name}, row {number}", json.loads(line))


def builtin_file(name: str, console: Console) -> Path:
    """Return the file of a builtin set, written at once, so that a file that exists is complete."""
    versions = source_versions(name)
    identity = json.dumps([name, BUILTIN_VERSION, ROWS_PER_CLASS, versions])
    path = cache_folder() / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsonl"
    if not path.is_file():
        rows = collect_sentences(package_roots(BUILTIN_SOURCES[name]), ROWS_PER_CLASS, console)
        content = "".join(json.dumps(row) + "\n" for row in rows)
        try:
            atomic_write(path, content)
        except OSError as error:
            raise DataError(
                f"the builtin set '{name}' cannot be cached at {path}: {error.strerror or error}.",
                hint="COMPRESS_CACHE names another folder for such files",
            ) from error
    return path


def package_roots(libraries: Iterable[str]) -> dict[str, Path]:
    """Return the folder of each library's source from its metadata: importing torch to locate it takes seconds."""
    folders = {name: "sklearn" if name == "scikit-learn" else name for name in libraries}
    return {name: Path(str(metadata.distribution(name).locate_file(folder))) for name, folder in folders.items()}


def collect_sentences(roots: Mapping[str, Path], limit: int, console: Console) -> Iterator[dict[str, str]]:
    """Yield rows of text and library, library by library, without duplicates."""
    hidden = set(NICKNAMES)
    for name, root in roots.items():
        hidden |= {name.lower(), *name.lower().split("-"), root.name.lower(), *module_names(root)}
    taken: set[str] = set()
    with console.progress(len(roots), "collecting sentences of documentation", "libraries") as progress:
        for name, root in roots.items():
            texts = library_sentences(root, limit, hidden, taken)
            if not texts:
                raise DataError(f"{root} has no docstrings; is {name} installed with its sources?")
            if len(texts) < limit:
                console.note(f"{name} has {len(texts)} sentences of documentation, not {limit}.")
            yield from ({"text": text, "library": name} for text in texts)
            progress.advance()


def library_sentences(root: Path, limit: int, hidden: set[str], taken: set[str]) -> list[str]:
    """Return up to ``limit`` masked sentences of one library that are not ``taken`` yet, and add them to it.

    Each docstring gives its first sentence; reading stops once there are enough. Only a small library, read to its end,
    gives the second sentences of its docstrings too, then the third.
    """
    texts, later = list[str](), list[list[str]]()
    for path in package_files(root):
        for docstring in docstrings(path):
            first, *rest = [mask_names(sentence, hidden) for sentence in sentences(docstring)] or [""]
            _take([first], texts, taken, limit)
            later.append(rest)
        if len(texts) >= limit:
            return texts
    for candidates in zip_longest(*later, fillvalue=""):
        _take(candidates, texts, taken, limit)
    return texts


def _take(candidates: Iterable[str], texts: list[str], taken: set[str], limit: int) -> None:
    for text in candidates:
        if text and text not in taken and len(texts) < limit:
            taken.add(text)
            texts.append(text)


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
