"""Download a published entry from a folder, an http(s) address or the hub, and verify it before it gets its name."""

from __future__ import annotations

import hashlib
import os
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

from compress.environment import require
from compress.errors import ModelError, UsageError
from compress.model_info import CHUNK
from compress.model_sources import HUB_ID
from compress.publish.checksums import DIGESTS_FILE, MAX_DIGESTS_BYTES, FileDigest, parse_digests, read_digests
from compress.publish.verify import verify
from compress.storage.atomic_write import atomic_replace_folder

TIMEOUT = 30.0
"""Seconds without a byte after which a download fails."""


def pull(source: str | Path, to: Path) -> Path:
    """Download a published entry into the folder ``to``, verify it and return ``to``.

    Args:
        source: an entry's folder in a zoo, its http(s) address, or a hub id (``owner/name[@revision]``).
        to: the folder to create. One that already holds exactly this entry is left as it is; any other that is not
            empty is refused, and so is a folder inside a published entry.
    """
    text = str(source)
    if Path(text).is_dir():
        return _pull_with(to, lambda work: _copy(Path(text), work))
    if text.startswith(("http://", "https://")):
        return _pull_with(to, lambda work: _download(text.rstrip("/"), work))
    if HUB_ID.match(text):
        return _pull_with(to, lambda work: _download_from_hub(text, work))
    raise UsageError(
        f"there is no published model at {text}.",
        hint="expected an entry's folder in a zoo, its http(s) address, or a hub id such as owner/name",
    )


def _pull_with(to: Path, fetch: Callable[[Path], None]) -> Path:
    """Fetch into a temporary folder next to ``to``, verify it, and rename it."""
    _refuse_inside_entry(to)
    with _temporary_folder(to) as work:
        fetch(work)
        verify(work)
        if to.exists() and not _is_empty(to):
            _check_same(to, work)
            return to
        atomic_replace_folder(work, to)
    return to


def _refuse_inside_entry(to: Path) -> None:
    """A folder more would make the entry fail its verification."""
    for parent in to.absolute().parents:
        if (parent / DIGESTS_FILE).is_file():
            raise UsageError(
                f"{to} is inside {parent}, which is a published model.", hint="pull into a folder outside of it"
            )


@contextmanager
def _temporary_folder(to: Path) -> Iterator[Path]:
    """Create an empty folder next to ``to``; it is removed afterwards unless it was renamed."""
    work = to.absolute().parent / f".{to.absolute().name}.pull-{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    try:
        work.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"{to} cannot be created: {error.strerror}.") from error
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _check_same(to: Path, work: Path) -> None:
    if (to / DIGESTS_FILE).is_file() and read_digests(to) == read_digests(work):
        verify(to)
        return
    raise UsageError(f"{to} exists and holds something else.", hint="name another folder, or remove that one")


def _copy(source: Path, work: Path) -> None:
    for name in [*read_digests(source).files, DIGESTS_FILE]:
        if not (source / name).is_file():
            raise ModelError(f"{source} lacks {name}, which was published with it.")
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, work / name)


def _download(address: str, work: Path) -> None:
    content = b"".join(_stream(f"{address}/{DIGESTS_FILE}", MAX_DIGESTS_BYTES))
    for name, file in parse_digests(content, f"{address}/{DIGESTS_FILE}").files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        _download_file(f"{address}/{urllib.parse.quote(name)}", work / name, file)
    (work / DIGESTS_FILE).write_bytes(content)


def _download_file(address: str, path: Path, file: FileDigest) -> None:
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as stream:
        for chunk in _stream(address, file.bytes):
            digest.update(chunk)
            size += len(chunk)
            stream.write(chunk)
    if size != file.bytes or digest.hexdigest() != file.sha256:
        raise ModelError(f"{address} is not what was published: got {size} bytes, {file.bytes} were published.")


def _stream(address: str, limit: int) -> Iterator[bytes]:
    """Yield the bytes at an address in chunks; more than ``limit`` is an error."""
    size = 0
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as response:
            while chunk := response.read(CHUNK):
                size += len(chunk)
                if size > limit:
                    raise ModelError(f"{address} is larger than the {limit} bytes that were published.")
                yield chunk
    except urllib.error.HTTPError as error:
        raise ModelError(f"{address}: the server answered {error.code} {error.reason}.") from error
    except (OSError, HTTPException) as error:
        raise ModelError(f"{address} cannot be downloaded: {getattr(error, 'reason', None) or error}.") from error


def _download_from_hub(source: str, work: Path) -> None:
    hub = require("huggingface_hub", "hub")
    name, _, revision = source.partition("@")
    try:
        hub.snapshot_download(name, revision=revision or None, local_dir=work)
    except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError) as error:
        raise ModelError(
            f"{source} cannot be downloaded from the hub: {str(error).splitlines()[0]}",
            hint="compress doctor checks whether the hub is reachable; a private model needs the variable HF_TOKEN",
        ) from error
    shutil.rmtree(work / ".cache", ignore_errors=True)
