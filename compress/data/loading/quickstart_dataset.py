"""The quickstart's data: from one sentence of documentation, tell which library it documents.

It needs no download: the sentences are the docstrings of libraries that the install itself brought, read from their
source files without importing them. Names of the libraries and of their modules are masked, and sentences with
identifiers in them left out. The same package versions give the same rows in the same order; they are gathered once
and kept in a cache folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from compress.console import Console
from compress.data.loading.data_digest import BUILTIN_SOURCES, BUILTIN_VERSION, source_versions
from compress.data.loading.docstrings import docstrings, masked, module_names, package_files, sentences
from compress.errors import DataError
from compress.tasks.base import RawRow

ROWS_PER_CLASS = 1500
"""Sentences of each library, fewer where it has no more."""

NICKNAMES = frozenset({"np", "pd", "nx", "pytorch", "scikit", "hugging", "face", "huggingface"})
"""Other words by which the libraries call themselves and each other."""


def builtin_rows(name: str, console: Console | None = None) -> Iterator[RawRow]:
    """The rows of a builtin set, gathered now if this machine has not done so for these package versions."""
    path = builtin_file(name, console or Console("quiet"))
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            yield RawRow(f"builtin {name}, row {number}", json.loads(line))


def builtin_file(name: str, console: Console) -> Path:
    """The file of a builtin set. It is written aside and renamed into place, so that one that exists is whole."""
    versions = source_versions(name)
    identity = json.dumps([name, BUILTIN_VERSION, ROWS_PER_CLASS, versions])
    path = cache_folder() / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsonl"
    if path.is_file():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as room:
            draft = Path(room) / path.name
            with draft.open("w", encoding="utf-8") as stream:
                for row in collect_sentences(package_roots(BUILTIN_SOURCES[name]), ROWS_PER_CLASS, console):
                    stream.write(json.dumps(row) + "\n")
            draft.replace(path)
    except OSError as error:
        raise DataError(
            f"the builtin set '{name}' cannot be kept at {path}: {error.strerror or error}.",
            hint="COMPRESS_CACHE names another folder for such files",
        ) from error
    return path


def cache_folder() -> Path:
    """Where builtin sets are kept: COMPRESS_CACHE, else ~/.cache/compress."""
    chosen = os.environ.get("COMPRESS_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "compress"


def package_roots(libraries: Mapping[str, str]) -> dict[str, Path]:
    """The folder of each library's source, found through its metadata: importing torch to find it takes seconds."""
    return {name: Path(str(metadata.distribution(name).locate_file(folder))) for name, folder in libraries.items()}


def collect_sentences(roots: Mapping[str, Path], most: int, console: Console) -> Iterator[dict[str, str]]:
    """Rows of text and library, library by library, no text twice."""
    hidden = set(NICKNAMES)
    for name, root in roots.items():
        hidden |= {name.lower(), *name.lower().split("-"), root.name.lower(), *module_names(root)}
    taken: set[str] = set()
    with console.progress(len(roots), "gathering sentences of documentation", "libraries") as progress:
        for name, root in roots.items():
            found = library_sentences(root, most, hidden, taken)
            if not found:
                raise DataError(f"{root} has no docstrings to collect_sentences; is {name} installed with its sources?")
            if len(found) < most:
                console.note(f"{name} has {len(found)} sentences of documentation, not {most}.")
            yield from ({"text": text, "library": name} for text in found)
            progress.advance()


def library_sentences(root: Path, most: int, hidden: set[str], taken: set[str]) -> list[str]:
    """Up to ``most`` masked sentences of one library that are not ``taken`` yet (they are added to it).

    One docstring gives one sentence, its first; reading stops once there are enough. Only a small library, read to its
    end, gives the second sentences of its docstrings too, then the third.
    """
    found: list[str] = []
    later: list[list[str]] = []
    for path in package_files(root):
        for docstring in docstrings(path):
            first, *rest = [masked(sentence, hidden) for sentence in sentences(docstring)] or [""]
            _take([first], found, taken, most)
            later.append(rest)
        if len(found) >= most:
            return found
    depth = max(map(len, later), default=0)
    for place in range(depth):
        _take([rest[place] for rest in later if place < len(rest)], found, taken, most)
    return found


def _take(candidates: list[str], found: list[str], taken: set[str], most: int) -> None:
    for text in candidates:
        if text and text not in taken and len(found) < most:
            taken.add(text)
            found.append(text)
