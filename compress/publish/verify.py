"""Compare a published entry with its checksums; neither torch nor the hub's client is needed.

Checksums are stored with the files: they prove that a copy is complete and unchanged since it was published, not who
published it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from compress.errors import ModelError
from compress.publish.checksums import DIGESTS_FILE, read_digests
from compress.storage.file_digests import file_digest

IGNORED = (".gitattributes", ".cache", ".gitignore")
"""What the hub's client and git add to a downloaded folder."""


def verify(folder: Path | str) -> int:
    """Compare every file of a published entry with its checksum; return the number of files.

    A file that is missing, differs or is not listed, and any symbolic link, is an error; one message names them all.
    """
    folder = Path(folder)
    listed = read_digests(folder).files
    files = {
        path.relative_to(folder).as_posix() for path in _contents(folder) if not (path.is_symlink() or path.is_dir())
    }
    faults = [*differences(folder), *(f"{name} was not published" for name in sorted(files - {*listed, DIGESTS_FILE}))]
    if faults:
        raise ModelError("\n  ".join([f"{folder} is not what was published:", *faults]))
    return len(listed)


def differences(folder: Path, digest_of: Callable[[Path], str] = file_digest) -> Iterator[str]:
    """Describe each symbolic link, and each file of digests.json that is missing or differs."""
    for path in _contents(folder):
        if path.is_symlink():
            yield f"{path.relative_to(folder).as_posix()} is a symbolic link; expected a file or folder of its own"
    for name, file in read_digests(folder).files.items():
        path = folder / name
        if not path.is_file():
            yield f"{name} is missing"
        elif path.stat().st_size != file.bytes:
            yield f"{name} has {path.stat().st_size:,} bytes, {file.bytes:,} were published"
        elif digest_of(path) != file.sha256:
            yield f"{name} differs from what was published"


def _contents(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.relative_to(folder).parts[0] not in IGNORED]
