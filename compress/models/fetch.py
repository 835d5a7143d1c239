"""From what a recipe names (a card, a local folder, a hub id) to a local folder of weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from compress.errors import ModelError
from compress.model_sources import folder_of

SMALL_FILES = ("config.json", "tokenizer*", "special_tokens_map.json", "vocab*", "merges.txt", "*.model")
EMBEDDING_FILES = ("modules.json", "*_Pooling/config.json", "*_Dense/config.json", "*_Dense/model.safetensors")
"""What tells how sentence-transformers makes embeddings."""
SAFE_WEIGHTS = "model.safetensors"
FOREIGN_WEIGHTS = "pytorch_model.bin"


def fetch(source: str, revision: str | None = None, cards: Sequence[Path] = ()) -> Path:
    """The local folder of a teacher card, a folder's path or a hub id (``owner/name`` or ``owner/name@revision``).

    A package's weights are checked against their digest; a hub checkpoint is downloaded once into the hub's own cache.
    """
    return folder_of(source, revision, cards, download)


def download(name: str, revision: str) -> Path:
    """A hub repository's configuration, tokenizer and weights; safetensors where it has them."""
    folder = Path()
    try:
        for weights in (SAFE_WEIGHTS, FOREIGN_WEIGHTS):
            folder = Path(
                snapshot_download(name, revision=revision, allow_patterns=[*SMALL_FILES, *EMBEDDING_FILES, weights])
            )
            if (folder / weights).is_file():
                return folder
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise ModelError(
            f"{name}@{revision} cannot be had from the hub: {str(error).splitlines()[0]}",
            hint=f"where the hub is reachable, `hf download {name} --local-dir DIR`; then name DIR instead of {name}",
        ) from error
    raise ModelError(f"{name}@{revision} has neither {SAFE_WEIGHTS} nor {FOREIGN_WEIGHTS}; its files are in {folder}.")
