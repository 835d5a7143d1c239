"""Published models on the Hugging Face hub: one commit for each version, tagged with it.

The token is read from the environment only.
"""

import os
import shutil
from pathlib import Path

from compress.environment import require
from compress.errors import ModelError, UsageError
from compress.model_sources import HUB_ID
from compress.publish.verify import PULLED_FILE, verify

TOKEN_VARIABLE = "HF_TOKEN"
"""The environment variable that holds the token."""


def push(folder: Path, name: str, *, version: str | None = None, private: bool = False) -> str:
    """Upload a published version as a commit of ``owner/name``, tagged with the version; return its address.

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
        if version and any(tag.name == version for tag in api.list_repo_refs(name).tags):
            raise UsageError(f"{name} has the version {version} already; versions are never overwritten.")
        message = f"Publish version {version} with compress" if version else "Publish with compress"
        commit = api.upload_folder(
            repo_id=name,
            folder_path=folder,
            commit_message=message,
            delete_patterns="*",
            ignore_patterns=PULLED_FILE,  # of this machine
        )
        if version:
            api.create_tag(name, tag=version, revision=commit.oid)
    except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError) as error:
        raise ModelError(
            f"{name} cannot be pushed to the hub: {str(error).splitlines()[0]}",
            hint="compress doctor checks whether the hub is reachable; the token needs write access",
        ) from error
    return str(address)


def download(source: str, work: Path) -> None:
    """Download ``owner/name[@revision]`` into a folder; a version is a tag, and so a revision."""
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
