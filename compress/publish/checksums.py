"""digests.json: the sha256 and size of every file of a published model, and reading it without trusting it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from compress.errors import ModelError, first_error
from compress.model_info import combined_digest, digests

DIGESTS_FILE = "digests.json"
SAFE_NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9 ._+-]*$")


def _safe(path: str) -> str:
    """A relative path that cannot leave its folder or hide in it, on any system."""
    parts = PurePosixPath(path).parts
    if not parts or not all(SAFE_NAME.match(part) for part in parts) or "/".join(parts) != path:
        raise ValueError(f"'{path}' is no plain relative path")
    return path


class FileDigest(BaseModel):
    """What one file must be."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)


class Digests(BaseModel):
    """The content of digests.json."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal[1] = 1
    files: Mapping[Annotated[str, AfterValidator(_safe)], FileDigest] = Field(min_length=1)

    @property
    def combined(self) -> str:
        """One digest of the whole."""
        return combined_digest({name: file.sha256 for name, file in self.files.items()})


def write_digests(folder: Path) -> Digests:
    """Write digests.json over all other files of ``folder``."""
    files = {
        name: FileDigest(sha256=digest, bytes=(folder / name).stat().st_size)
        for name, digest in digests(folder).items()
        if name != DIGESTS_FILE
    }
    written = Digests(files=files)
    (folder / DIGESTS_FILE).write_text(written.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return written


def parse_digests(content: bytes, source: str) -> Digests:
    """Read digests.json; ``source`` names it in errors."""
    try:
        return Digests.model_validate_json(content)
    except ValidationError as error:
        raise ModelError(f"{source} is not a list of digests: {first_error(error)}") from error
