"""digests.json: the sha256 and size of every file of a published entry, and reading it without trusting it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from compress.errors import ModelError, first_error
from compress.storage.file_digests import combined_digest, digests
from compress.storage.schema_version import up_to
from compress.storage.stored_info import Info

DIGESTS_FILE = "digests.json"
MAX_DIGESTS_BYTES = 1 << 20
"""An entry has tens of files; a list of this size would name about 8,000."""
_PART = r"[A-Za-z0-9_][A-Za-z0-9 ._+-]*"
RelativePath = Annotated[str, Field(pattern=rf"^{_PART}(/{_PART})*$")]
"""A path that stays within its folder and is not hidden, on any system."""


class FileDigest(Info):
    """Checksum and size of one published file."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)


class Digests(Info):
    """The content of digests.json."""

    schema_version: Annotated[int, up_to(1)] = 1
    files: Mapping[RelativePath, FileDigest] = Field(min_length=1)

    @property
    def combined(self) -> str:
        """One digest over the names and checksums of all files."""
        return combined_digest({name: file.sha256 for name, file in self.files.items()})


def write_digests(folder: Path) -> Digests:
    """Write digests.json for all other files of ``folder`` and return its content."""
    files = {
        name: FileDigest(sha256=digest, bytes=(folder / name).stat().st_size)
        for name, digest in digests(folder).items()
        if name != DIGESTS_FILE
    }
    content = Digests(files=files)
    (folder / DIGESTS_FILE).write_text(content.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return content


def read_digests(folder: Path) -> Digests:
    """Read digests.json of a published entry's folder."""
    path = folder / DIGESTS_FILE
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_DIGESTS_BYTES + 1)
    except FileNotFoundError as error:
        hint = "compress publish writes one with every entry of a zoo"
        raise ModelError(f"{folder} has no {DIGESTS_FILE}, so there is nothing to check against.", hint) from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
    return parse_digests(content, str(path))


def parse_digests(content: bytes, source: str) -> Digests:
    """Parse the content of digests.json; ``source`` names it in errors."""
    if len(content) > MAX_DIGESTS_BYTES:
        raise ModelError(f"{source} is not a list of digests: it has more than {MAX_DIGESTS_BYTES:,} bytes.")
    try:
        return Digests.model_validate_json(content)
    except ValidationError as error:
        raise ModelError(f"{source} is not a list of digests: {first_error(error)}") from error
