"""A cheap check of a published folder before it predicts: sizes always, checksums once per file and machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from compress.data.loading.quickstart_dataset import cache_folder
from compress.errors import ModelError
from compress.model_info import file_digest
from compress.publish.checksums import DIGESTS_FILE, Digests, read_digests
from compress.storage.atomic_write import atomic_write

CACHE_FILE = "verified.json"
MAX_CACHED = 2_000
"""Files whose verification is remembered; the oldest are forgotten first."""


def find_damage(folder: Path) -> str | None:
    """Describe the first file that differs from digests.json; None where all agree or there is no such list."""
    if not (folder / DIGESTS_FILE).is_file():
        return None
    try:
        return next(_differences(folder, read_digests(folder)), None)
    except ModelError as error:
        return error.message.rstrip(".")


def _differences(folder: Path, listed: Digests) -> Iterator[str]:
    cache = cache_folder() / CACHE_FILE
    verified = _read(cache)
    remembered = len(verified)
    for name, expected in listed.files.items():
        path = folder / name
        if not path.is_file():
            yield f"{name} is missing"
            continue
        facts = path.stat()
        if facts.st_size != expected.bytes:
            yield f"{name} has {facts.st_size:,} bytes, published were {expected.bytes:,}"
            continue
        key = f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}"
        if key not in verified:
            verified[key] = file_digest(path)
        if verified[key] != expected.sha256:
            yield f"{name} has another sha256 than published"
    if len(verified) > remembered:
        _write(cache, verified)


def _read(cache: Path) -> dict[str, str]:
    try:
        content = json.loads(cache.read_bytes())
        return {str(key): str(value) for key, value in content["files"].items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return {}


def _write(cache: Path, verified: dict[str, str]) -> None:
    """Store the cache where that is possible; without it, files are read again next time."""
    latest = dict(list(verified.items())[-MAX_CACHED:])
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(cache, json.dumps({"schema_version": 1, "files": latest}))
    except OSError:
        return
