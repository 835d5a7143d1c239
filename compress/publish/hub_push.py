"""Upload a published entry to the Hugging Face hub; the token is read from the environment only."""

from __future__ import annotations

import os
from pathlib import Path

from compress.environment import require
from compress.errors import ModelError, UsageError
from compress.model_sources import HUB_ID
from compress.publish.verify import verify

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
