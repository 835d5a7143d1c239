"""Compare a published entry with its checksums; neither torch nor the hub's client is needed.

Checksums are stored with the files: they prove that a copy is complete and unchanged since it was published, not who
published it.
"""

from __future__ import annotations

import os
from pathlib import Path

from compress.errors import ModelError
from compress.model_info import file_digest
from compress.publish.checksums import DIGESTS_FILE, FileDigest, read_digests

IGNORED = (".gitattributes", ".cache", ".gitignore")
"""What the hub's client and git add to a downloaded folder."""


def verify(folder: Path | str) -> int:
    """Compare every file of a published entry with its checksum; return the number of files.

    A file that is missing, differs or is not listed, and any symbolic link, is an error; one message names them all.
    """
    folder = Path(folder)
    listed = read_digests(folder).files
    present, links = _walk(folder)
    faults = [f"{name} is a symbolic link; expected a file or folder of its own" for name in sorted(links)]
    faults += [fault for name, file in listed.items() if name not in links and (fault := _fault(folder, name, file))]
    faults += [f"{name} was not published" for name in sorted(present - set(listed) - {DIGESTS_FILE})]
    if faults:
        raise ModelError("\n  ".join([f"{folder} is not what was published:", *faults]))
    return len(listed)


def _walk(folder: Path) -> tuple[set[str], set[str]]:
    """Return the relative paths of all files and of all symbolic links below ``folder``, without following links."""
    present, links = set[str](), set[str]()
    for root, folders, files in os.walk(folder):
        for path in (Path(root) / name for name in (*folders, *files)):
            name = path.relative_to(folder).as_posix()
            if name.split("/")[0] in IGNORED:
                continue
            if path.is_symlink():
                links.add(name)
            elif not path.is_dir():
                present.add(name)
    return present, links


def _fault(folder: Path, name: str, file: FileDigest) -> str | None:
    path = folder / name
    if not path.is_file():
        return f"{name} is missing"
    if path.stat().st_size != file.bytes:
        return f"{name} has {path.stat().st_size} bytes, {file.bytes} were published"
    if file_digest(path) != file.sha256:
        return f"{name} differs from what was published"
    return None
