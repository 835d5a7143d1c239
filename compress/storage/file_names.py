"""Names that become files and folders: of runs, targets and published models, and of the user's cache."""

import os
import re
import unicodedata
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

STEPS_FOLDER = ".steps"
"""The results of all steps of the runs beside it."""

ANSWERS_FILE = "answers.npz"
"""A model's predictions, in the folders of steps that store some."""

RECORD_FILE = "step.json"
"""What a step was computed from and took, in its folder."""

MAX_NAME_LENGTH = 100
"""File systems allow 255 bytes; temporary folders add a prefix and a process id."""


def check_file_name(name: str) -> str:
    """Return ``name`` if it is safe as the name of one folder on any system; raise ValueError otherwise."""
    if len(name) > MAX_NAME_LENGTH or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        limits = f"may hold up to {MAX_NAME_LENGTH} letters, digits, '.', '_' and '-' and starts with a letter or digit"
        raise ValueError(f"{limits}, got {name[:150]!r}")
    return name


def file_name_like(name: str) -> str:
    """Return ``name`` as a file name of any system: what it may not hold is left out or becomes `-`.

    Where letters are left out, as of other scripts, a digest keeps different names apart.
    """
    letters = unicodedata.normalize("NFKD", name)
    plain = letters.encode("ascii", "ignore").decode()
    made = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-._")[: MAX_NAME_LENGTH - 8] or "recipe"
    lost = any(each.isalnum() and not each.isascii() for each in letters)
    return f"{made}-{sha256(name.encode()).hexdigest()[:7]}" if lost else made


def name_with(name: str, ending: str) -> str:
    """Return a file name with an ending, cut where both are longer than one may be."""
    return name[: MAX_NAME_LENGTH - len(ending)] + ending


FileName = Annotated[str, AfterValidator(check_file_name)]
"""A string that `check_file_name` accepts."""


def expanded_user(path: str | Path) -> Path:
    """Return a path with its `~` expanded; `~name` stays as it is where there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def cache_folder() -> Path:
    """Return COMPRESS_CACHE, else ~/.cache/compress."""
    return expanded_user(os.environ.get("COMPRESS_CACHE") or "~/.cache/compress")
