"""A cheap check of a published folder before it predicts: sizes always, checksums once per file and machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ValidationError

from compress.errors import ModelError
from compress.publish.checksums import DIGESTS_FILE
from compress.publish.verify import differences
from compress.storage.atomic_write import atomic_write
from compress.storage.cache_folder import cache_folder
from compress.storage.file_digests import file_digest

CACHE_FILE = "verified.json"
MAX_CACHED = 2_000
"""Files whose checksums are cached; the oldest are removed first."""


class Checksums(BaseModel):
    """The cache: checksums by path, size and time of change."""

    schema_version: int = 1
    files: dict[str, str] = {}


def find_damage(folder: Path) -> str | None:
    """Describe the first file that differs from digests.json; None where all agree or there is no such list."""
    if not (folder / DIGESTS_FILE).is_file():
        return None
    cache = cache_folder() / CACHE_FILE
    try:
        computed = Checksums.model_validate_json(cache.read_bytes()).files
    except (OSError, ValidationError):
        computed = {}
    count = len(computed)

    def digest_once(path: Path) -> str:
        key = f"{path.resolve()} {path.stat().st_size} {path.stat().st_mtime_ns}"
        if key not in computed:
            computed[key] = file_digest(path)
        return computed[key]

    try:
        damage = next(differences(folder, digest_once), None)
    except ModelError as error:
        return error.message.rstrip(".")
    if len(computed) > count:
        with suppress(OSError):  # without a cache, files are read again next time
            atomic_write(cache, Checksums(files=dict([*computed.items()][-MAX_CACHED:])).model_dump_json())
    return damage
