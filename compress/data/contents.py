"""What data is, whatever it is called: existing files, and a digest of contents for fingerprints."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from compress.errors import DataError, UsageError, nearest
from compress.folder import file_digest
from compress.recipe.forms import Role
from compress.recipe.schema import Data

ROLES: tuple[Role, ...] = ("train", "select", "test")

LIBRARIES: Mapping[str, str] = {
    "networkx": "networkx",
    "numpy": "numpy",
    "pandas": "pandas",
    "scikit-learn": "sklearn",
    "scipy": "scipy",
    "sympy": "sympy",
    "torch": "torch",
    "transformers": "transformers",
}
"""Distributions that the train extra brings by itself or through what it needs, and what each is imported as."""

BUILTIN_SOURCES: Mapping[str, Mapping[str, str]] = {"docstrings": LIBRARIES}
"""Sets that are built here, and the distributions each is gathered from."""

BUILTIN_VERSION = 1
"""Raised when the way of gathering changes, so that nothing made in the old way is taken for the new."""


def role_entries(data: Data, role: Role) -> tuple[str, ...]:
    """What the recipe gives for a role: files, or splits of a hub set."""
    return entries_of({"train": data.train, "select": data.select, "test": data.test}[role])


def entries_of(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """None, one or several as a tuple."""
    return () if given is None else (given,) if isinstance(given, str) else given


def find_files(data: Data) -> dict[Role, tuple[Path, ...]]:
    """The files of each role that has any; a missing one is an error that names the nearest file beside it."""
    return {
        role: tuple(_existing(Path(entry).expanduser(), role) for entry in entries)
        for role in ROLES
        if (entries := role_entries(data, role))
    }


def corpus_files(data: Data) -> tuple[Path, ...]:
    """The files of documents that are searched on test."""
    if data.hub is not None:
        return ()
    return tuple(_existing(Path(entry).expanduser(), "corpus") for entry in entries_of(data.corpus))


def contents_digest(data: Data) -> str:
    """One digest of all that rows are read from: bytes of files by role, never their paths.

    A hub set is known by its id, revision and splits, a builtin one by the versions of what it is gathered from.
    """
    digest = hashlib.sha256()
    for line in _identity(data):
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _identity(data: Data) -> list[str]:
    if data.hub is not None:
        splits = [f"{role} {entry}" for role in ROLES for entry in role_entries(data, role)]
        splits += [f"corpus {entry}" for entry in entries_of(data.corpus)]
        return [f"hub {data.hub} {data.revision or 'main'}", *splits]
    if data.builtin is not None:
        versions = source_versions(data.builtin)
        return [
            f"builtin {data.builtin} {BUILTIN_VERSION}",
            *(f"{name} {version}" for name, version in versions.items()),
        ]
    files: list[tuple[str, Path]] = [(role, path) for role, paths in find_files(data).items() for path in paths]
    files += [("corpus", path) for path in corpus_files(data)]
    return [f"{role} {data.format or ''.join(path.suffixes)} {file_digest(path)}" for role, path in files]


def source_versions(builtin: str) -> dict[str, str]:
    """The versions of the distributions that a builtin set is gathered from."""
    if builtin not in BUILTIN_SOURCES:
        raise UsageError(f"no builtin set is called '{builtin}'{nearest(builtin, BUILTIN_SOURCES)}.")
    versions, missing = dict[str, str](), list[str]()
    for name in BUILTIN_SOURCES[builtin]:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        raise DataError(
            f"the builtin set '{builtin}' is gathered from installed packages; not installed: {', '.join(missing)}.",
            hint="pip install 'compress-encoders[train,quickstart]'",
        )
    return versions


def _existing(path: Path, role: str) -> Path:
    if path.is_dir():
        raise DataError(f"task.data.{role}: {path} is a folder where a file is expected.")
    if path.is_file():
        return path
    beside = path.parent
    if not beside.is_dir():
        raise DataError(f"task.data.{role}: there is no file {path}, and no folder {beside} either.")
    guess = nearest(path.name, [entry.name for entry in beside.iterdir() if entry.is_file()])
    raise DataError(f"task.data.{role}: there is no file {path}{guess}")
