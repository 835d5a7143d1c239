"""SHA-256 digests of files and folders."""

import hashlib
from collections.abc import Mapping
from pathlib import Path


def file_digest(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digests(folder: Path) -> dict[str, str]:
    """The sha256 of every file under ``folder``, by relative path in sorted order."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in files}


def combined_digest(parts: Mapping[str, str]) -> str:
    """One digest of many, independent of their order."""
    lines = "".join(f"{name} {parts[name]}\n" for name in sorted(parts))
    return hashlib.sha256(lines.encode()).hexdigest()
