"""Names that become files and folders: of runs, targets and published models."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

MAX_NAME_LENGTH = 100
"""File systems allow 255 bytes; temporary folders add a prefix and a process id."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_file_name(name: str) -> str:
    """Return ``name`` if it is safe as the name of one folder on any system; raise ValueError otherwise."""
    if len(name) > MAX_NAME_LENGTH:
        raise ValueError(f"has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed")
    if not _NAME.fullmatch(name):
        raise ValueError(f"may hold letters, digits, '.', '_' and '-' and starts with a letter or digit, got {name!r}")
    return name


FileName = Annotated[str, AfterValidator(check_file_name)]
"""A string that `check_file_name` accepts."""
