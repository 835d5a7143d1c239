"""Choices of a precision, kept for later trainings of the same shape on the same machine, in the cache folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from compress.storage.atomic_write import atomic_write
from compress.storage.cache_folder import cache_folder

FOLDER = "precision"


class PrecisionChoice(BaseModel):
    """A precision of trainings, and why it is that one."""

    model_config = ConfigDict(frozen=True)

    precision: str
    reason: str | None = None
    """None where the recipe says so."""


class KeptChoice(PrecisionChoice):
    """The content of a file."""

    schema_version: Literal[1] = 1
    precision: Literal["fp32", "bf16"]
    key: Mapping[str, Any]
    """The machine and the shape; the file is named by its digest."""


def kept_choice(key: Mapping[str, Any]) -> PrecisionChoice | None:
    """Return the choice that was kept for a key; None without one, or where its file is damaged."""
    try:
        kept = KeptChoice.model_validate_json(_path(key).read_bytes())
    except (OSError, ValidationError):
        return None
    return PrecisionChoice(precision=kept.precision, reason=kept.reason)


def keep(key: Mapping[str, Any], choice: PrecisionChoice) -> None:
    """Keep a choice; where the cache folder cannot be written, the next training chooses again."""
    kept = KeptChoice.model_validate({**choice.model_dump(), "key": key})
    with suppress(OSError):
        atomic_write(_path(key), kept.model_dump_json(indent=2) + "\n")


def _path(key: Mapping[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return cache_folder() / FOLDER / f"{digest[:16]}.json"
