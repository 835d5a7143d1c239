"""Resolves what a recipe names (a card, a local folder, a hub id) to a local folder of weights."""

from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from compress.errors import ModelError
from compress.model_sources import folder_of

SMALL_FILES = (
    "config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "*.model",
)
EMBEDDING_FILES = (
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    *("*_Pooling/config.json", "*_Dense/config.json", "*_Dense/model.safetensors", "*_Dense/pytorch_model.bin"),
)
"""Files that describe a model of sentence-transformers."""
SAFE_WEIGHTS = "model.safetensors"
FOREIGN_WEIGHTS = "pytorch_model.bin"


def fetch(source: str, revision: str | None = None, cards: Sequence[Path] = ()) -> Path:
    """Return the local folder of a card, a folder's path or a hub id (``owner/name`` or ``owner/name@revision``).

    Weights from a Python package are checked against their digest; a hub checkpoint is downloaded once, into the hub's
    own cache.
    """
    return folder_of(source, revision, cards, download)


def download(name: str, revision: str) -> Path:
    """Download a hub repository's config, tokenizer and weights (safetensors if it has them); return the folder."""
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
            f"{name}@{revision} cannot be downloaded from the hub: {str(error).splitlines()[0]}",
            hint=f"run `hf download {name} --local-dir DIR` where the hub is reachable, then use DIR instead of {name}",
        ) from error
    raise ModelError(f"{name}@{revision} has neither {SAFE_WEIGHTS} nor {FOREIGN_WEIGHTS}; its files are in {folder}.")
