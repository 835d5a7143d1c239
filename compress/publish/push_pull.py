"""Uploads a published entry to the Hugging Face hub; downloads one from a folder, an http(s) address or the hub.

The token is read from the environment only. A download is verified before it gets its name.
"""

from __future__ import annotations

import os
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.client import HTTPException
from pathlib import Path

from compress.environment import require
from compress.errors import ModelError, UsageError
from compress.model_sources import HUB_ID
from compress.publish.verify import DIGESTS_FILE, MAX_DIGESTS_BYTES, parse_digests, read_digests, verify
from compress.storage.atomic_write import new_folder

TOKEN_VARIABLE = "HF_TOKEN"
"""The environment variable that holds the token."""


def push(folder: Path, name: str, *, private: bool = False) -> str:
    """Upload a published entry as ``owner/name``, replacing that repository's content; return its address.

    The folder is verified first, so that only what was published is uploaded.
    """
    if not HUB_ID.match(name) or "@" in name or name.startswith("."):
        raise UsageError(f"'{name}' is not a hub id: expected owner/name.")
    verify(folder)
    hub = require("huggingface_hub", "hub")
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        raise UsageError(f"pushing to the hub needs a token in the environment variable {TOKEN_VARIABLE}.")
    api = hub.HfApi(token=token)
    try:
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Publish with compress", delete_patterns="*")
    except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError) as error:
        raise ModelError(
            f"{name} cannot be pushed to the hub: {str(error).splitlines()[0]}",
            hint="compress doctor checks whether the hub is reachable; the token needs write access",
        ) from error
    return str(address)


CHUNK = 1 << 20
"""Bytes that are read at a time."""
TIMEOUT = 30.0
"""Seconds without a byte after which a download fails."""


def pull(source: str | Path, to: Path) -> Path:
    """Download a published entry into the folder ``to``, verify it and return ``to``.

    Args:
        source: an entry's folder in a zoo, its http(s) address, or a hub id (``owner/name[@revision]``).
        to: the folder to create. One that holds exactly this entry is replaced by an equal copy; any other that is
            not empty is refused, and so is a folder inside a published entry.
    """
    text = str(source)
    if Path(text).is_dir():
        fetch = partial(_copy, Path(text))
    elif text.startswith(("http://", "https://")):
        fetch = partial(_download, text.rstrip("/"))
    elif HUB_ID.match(text):
        fetch = partial(_download_from_hub, text)
    else:
        raise UsageError(
            f"there is no published model at {text}.",
            hint="expected an entry's folder in a zoo, its http(s) address, or a hub id such as owner/name",
        )
    above = next((parent for parent in to.absolute().parents if (parent / DIGESTS_FILE).is_file()), None)
    if above is not None:  # a further folder would make that entry fail its verification
        raise UsageError(
            f"{to} is inside {above}, which is a published model.", hint="pull into a folder outside of it"
        )
    with new_folder(to) as work:
        fetch(work)
        verify(work)
        _check_replaceable(to, work)
    return to


def _check_replaceable(to: Path, work: Path) -> None:
    """Accept a folder that does not exist, is empty, or holds the same entry undamaged."""
    if to.is_dir() and (to / DIGESTS_FILE).is_file() and read_digests(to) == read_digests(work):
        verify(to)
    elif to.exists() and not (to.is_dir() and not any(to.iterdir())):
        raise UsageError(f"{to} exists and holds something else.", hint="name another folder, or remove that one")


def _copy(source: Path, work: Path) -> None:
    """Copy the files that are listed; those that are missing are found by `verify`."""
    for name in [*read_digests(source).files, DIGESTS_FILE]:
        if (source / name).is_file():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, work / name)


def _download(address: str, work: Path) -> None:
    content = b"".join(_stream(f"{address}/{DIGESTS_FILE}", MAX_DIGESTS_BYTES))
    (work / DIGESTS_FILE).write_bytes(content)
    for name, file in parse_digests(content, f"{address}/{DIGESTS_FILE}").files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        with (work / name).open("wb") as stream:
            stream.writelines(_stream(f"{address}/{urllib.parse.quote(name)}", file.bytes))


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
    except (OSError, HTTPException) as error:
        raise ModelError(f"{address} cannot be downloaded: {error}.") from error


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
