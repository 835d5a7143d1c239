"""The quickstart's data: sentences of documentation, classified by the library that they document.

It needs no download: the sentences are docstrings of libraries that are installed with compress, read from their source
files without importing them. Names of the libraries and of their modules are masked, and sentences with identifiers are
left out. The same package versions give the same rows in the same order; they are collected once and cached.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from itertools import zip_longest
from pathlib import Path

from compress.console import Console
from compress.data.loading.data_digest import BUILTIN_SOURCES, BUILTIN_VERSION, source_versions
from compress.data.loading.docstrings import docstrings, mask_names, module_names, package_files, sentences
from compress.errors import DataError
from compress.storage.atomic_write import atomic_write
from compress.tasks.base import RawRow

ROWS_PER_CLASS = 1500
"""Sentences of each library, fewer where it has no more."""

NICKNAMES = frozenset({"np", "pd", "nx", "pytorch", "scikit", "hugging", "face", "huggingface"})
"""Other names of the libraries, masked too."""


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


def cache_folder() -> Path:
    """Return the folder of builtin sets: COMPRESS_CACHE, else ~/.cache/compress."""
    return Path(os.environ.get("COMPRESS_CACHE") or "~/.cache/compress").expanduser()


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
