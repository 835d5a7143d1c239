"""Fetch a published model and check that every file is what was published; neither torch nor the hub is needed.

Digests come from the same place as the files: they prove that a copy is whole and unchanged since it was published, not
who published it.
"""

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
from compress.model_info import CHUNK, file_digest
from compress.model_sources import HUB_ID
from compress.publish.checksums import DIGESTS_FILE, Digests, FileDigest, parse_digests

TIMEOUT = 30.0
"""Seconds without a byte after which a download is given up."""
MOST_BYTES_OF_DIGESTS = 1 << 20
UNLISTED = (".gitattributes", ".cache", ".gitignore")
"""What hubs and git put beside the files."""


def verify(folder: Path | str) -> int:
    """Check every file of a published model; returns how many there are.

    A file that is missing, differs or is not listed is an error, and all of them are told at once.
    """
    folder = Path(folder)
    listed = read_digests(folder)
    faults = [fault for name, file in listed.files.items() if (fault := _fault(folder / name, name, file))]
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    extra = sorted(name for name in present - set(listed.files) - {DIGESTS_FILE} if name.split("/")[0] not in UNLISTED)
    faults += [f"{name} was not published" for name in extra]
    if faults:
        raise ModelError("\n  ".join([f"{folder} is not what was published:", *faults]))
    return len(listed.files)


def read_digests(folder: Path) -> Digests:
    """The digests of a published model's folder."""
    path = folder / DIGESTS_FILE
    if not folder.is_dir():
        raise ModelError(f"there is no folder {folder}.")
    if not path.is_file():
        raise ModelError(
            f"{folder} has no {DIGESTS_FILE}, so there is nothing to check against.",
            hint="a model that compress published has one; compress publish makes one of a run's winner",
        )
    return parse_digests(path.read_bytes(), str(path))


def pull(source: str | Path, to: Path) -> Path:
    """Fetch a published model into the folder ``to`` and verify it there.

    Args:
        source: a model's folder in a zoo, its http(s) address, or a hub id (``owner/name`` or ``owner/name@revision``).
        to: the folder to make. One that holds exactly this model already is left as it is; any other is refused.
    """
    text = str(source)
    if Path(text).is_dir():
        return _fetch_with(to, lambda work: _copy(Path(text), work))
    if text.startswith(("http://", "https://")):
        return _fetch_with(to, lambda work: _download(text.rstrip("/"), work))
    if HUB_ID.match(text):
        return _fetch_with(to, lambda work: _from_hub(text, work))
    raise UsageError(
        f"there is no published model at {text}.",
        hint="give a model's folder in a zoo, its http(s) address, or a hub id such as owner/name",
    )


def _fetch_with(to: Path, fetch: Callable[[Path], None]) -> Path:
    """Fetch into a folder beside ``to``, verify it, and rename it into place."""
    with _aside(to) as work:
        fetch(work)
        verify(work)
        if to.exists() and not _empty(to):
            _refuse_unless_same(to, work)
            return to
        if to.exists():
            to.rmdir()
        work.rename(to)
    return to


@contextmanager
def _aside(to: Path) -> Iterator[Path]:
    """An empty folder beside ``to`` that is gone afterwards, unless it was renamed."""
    work = to.absolute().parent / f".{to.absolute().name}.pull-{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _refuse_unless_same(to: Path, work: Path) -> None:
    if (to / DIGESTS_FILE).is_file() and read_digests(to) == read_digests(work):
        verify(to)
        return
    raise UsageError(f"{to} exists and holds something else.", hint="name another folder, or remove that one")


def _copy(source: Path, work: Path) -> None:
    listed = read_digests(source)
    for name in [*listed.files, DIGESTS_FILE]:
        if not (source / name).is_file():
            raise ModelError(f"{source} lacks {name}, which was published with it.")
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, work / name)


def _download(address: str, work: Path) -> None:
    content = b"".join(_stream(f"{address}/{DIGESTS_FILE}", MOST_BYTES_OF_DIGESTS))
    listed = parse_digests(content, f"{address}/{DIGESTS_FILE}")
    for name, file in listed.files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        _download_file(f"{address}/{urllib.parse.quote(name)}", work / name, file)
    (work / DIGESTS_FILE).write_bytes(content)


def _download_file(address: str, path: Path, file: FileDigest) -> None:
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as out:
        for chunk in _stream(address, file.bytes):
            digest.update(chunk)
            size += len(chunk)
            out.write(chunk)
    if size != file.bytes or digest.hexdigest() != file.sha256:
        raise ModelError(f"{address} is not what was published: {size} bytes came, {file.bytes} were published.")


def _stream(address: str, most: int) -> Iterator[bytes]:
    """The bytes at an address, in chunks; more than ``most`` is an error."""
    got = 0
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as response:
            while chunk := response.read(CHUNK):
                got += len(chunk)
                if got > most:
                    raise ModelError(f"{address} is larger than the {most} bytes that were published.")
                yield chunk
    except urllib.error.HTTPError as error:
        raise ModelError(f"{address}: the server answered {error.code} {error.reason}.") from error
    except (OSError, HTTPException) as error:
        raise ModelError(f"{address} cannot be fetched: {getattr(error, 'reason', None) or error}.") from error


def _from_hub(source: str, work: Path) -> None:
    hub = require("huggingface_hub", "hub")
    name, _, revision = source.partition("@")
    try:
        hub.snapshot_download(name, revision=revision or None, local_dir=work)
    except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError) as error:
        raise ModelError(
            f"{source} cannot be had from the hub: {str(error).splitlines()[0]}",
            hint="is the hub reachable? compress doctor tells; a private model needs HF_TOKEN in the environment",
        ) from error
    shutil.rmtree(work / ".cache", ignore_errors=True)


def _fault(path: Path, name: str, file: FileDigest) -> str | None:
    if path.is_symlink() or not path.is_file():
        return f"{name} is missing"
    if path.stat().st_size != file.bytes:
        return f"{name} has {path.stat().st_size} bytes, {file.bytes} were published"
    if file_digest(path) != file.sha256:
        return f"{name} differs from what was published"
    return None
