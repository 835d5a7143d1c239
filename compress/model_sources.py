"""Sources of models (cards, folders, hub ids) and their identity in fingerprints: contents, never paths."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from compress.cards import FolderCheckpoint, PackageCheckpoint, available, find_student, find_teacher, locate
from compress.errors import CompressError, ModelError, UsageError, nearest
from compress.model_folder.model_info import VariantInfo, find_info
from compress.model_folder.sentence_transformers_files import list_modules
from compress.storage.file_digests import combined_digest, digests, file_digest
from compress.storage.file_names import RECORD_FILE, expanded_user

Location = TypeVar("Location")

HUB_ID = re.compile(r"^(?!.*(?:--|\.\.))\w(?:[\w.-]*\w)?/\w(?:[\w.-]*\w)?(@[\w./-]+)?\Z", re.ASCII)
"""`owner/name` or `owner/name@revision`, each starting and ending with a letter or digit, as the hub has them."""

MODEL_FILES = ("*.json", "*.txt", "*.model", "*.safetensors", "*.bin")
"""The files of a model folder: configuration, tokenizer, weights."""


RECORD_FILES = (RECORD_FILE, "trainer_state.json")
"""Records of how a model was made, which are no part of it."""


def source_kind(
    source: str, kind: Literal["teachers", "students"], cards: Sequence[Path] = ()
) -> Literal["card", "folder", "hub"]:
    """Return what ``source`` names: a card takes precedence, `./name` always means a folder."""
    known = available(kind, cards)
    if source in known:
        return "card"
    if expanded_user(source).is_dir():
        return "folder"
    if HUB_ID.match(source) and not source.startswith("."):
        return "hub"
    if "/" in source or source.startswith((".", "~")):
        raise UsageError(f"there is no folder {source}.", hint="a hub id reads owner/name; compress ls shows the cards")
    raise UsageError(
        f"no {kind.rstrip('s')} card is called '{source}'{nearest(source, known)}, and no folder either.",
        hint="give a card's name (compress ls), a local folder, or a hub id such as owner/name",
    )


def folder_of(
    source: str, revision: str | None, cards: Sequence[Path], from_hub: Callable[[str, str], Location]
) -> Path | Location:
    """Return the folder of a teacher card, a path or a hub id.

    A package's weights are checked against their digest; of a repository on the hub ``from_hub`` tells.
    """
    named = source_kind(source, "teachers", cards)
    if named == "folder":
        return expanded_user(source)
    if named == "hub":
        return from_hub(*hub_address(source, revision))
    checkpoint = find_teacher(source, cards).checkpoint
    if isinstance(checkpoint, PackageCheckpoint):
        return locate(checkpoint)
    if isinstance(checkpoint, FolderCheckpoint):
        return Path(checkpoint.folder)
    return from_hub(checkpoint.hub, revision or checkpoint.revision)


def local_folder(source: str, revision: str | None = None, cards: Sequence[Path] = ()) -> Path | None:
    """Return the folder of a source's files if they are on this machine; never downloads."""
    try:
        return folder_of(source, revision, cards, cached_checkpoint)
    except CompressError:
        return None


def cached_checkpoint(name: str, revision: str) -> Path | None:
    """Return the folder of a hub repository in the hub's local cache; None if it is not cached."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    path = try_to_load_from_cache(name, "config.json", revision=revision)
    return Path(path).parent if isinstance(path, str) else None


def identity(
    source: str, revision: str | None, cards: Sequence[Path] = (), kind: Literal["teachers", "students"] = "teachers"
) -> dict[str, Any]:
    """Return what identifies a model: hub id and revision, a digest of weights, or a digest of files."""
    named = source_kind(source, kind, cards)
    if named == "folder":
        return _digest_of(expanded_user(source))
    if named == "hub":
        name, chosen = hub_address(source, revision)
        return {"hub": name, "revision": chosen}
    checkpoint = find_teacher(source, cards).checkpoint if kind == "teachers" else find_student(source, cards).start
    if isinstance(checkpoint, PackageCheckpoint):
        return {"sha256": checkpoint.sha256}
    if isinstance(checkpoint, str):
        return {"start": checkpoint}
    if isinstance(checkpoint, FolderCheckpoint):
        return _digest_of(Path(checkpoint.folder))
    return {"hub": checkpoint.hub, "revision": revision or checkpoint.revision}


def _digest_of(folder: Path) -> dict[str, Any]:
    """Return what identifies the model in a folder: its files, and those of its modules for sentence-transformers."""
    files = {path.name: path for path in model_files(folder)}
    for _, module in list_modules(folder):
        found = (path for pattern in MODEL_FILES for path in module.glob(pattern)) if module != folder else ()
        files |= {Path(os.path.relpath(path, folder)).as_posix(): path for path in found}
    return {"digest": combined_digest({name: file_digest(path) for name, path in files.items()})}


def hub_address(source: str, revision: str | None = None) -> tuple[str, str]:
    """Return the repository and revision of a hub id."""
    name, _, pinned = source.partition("@")
    return name, revision or pinned or "main"


def folder_identity(source: str) -> dict[str, Any]:
    """Return what identifies a model folder of any format: a digest of all its files."""
    folder = expanded_user(source)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {source}.")
    files = {name: digest for name, digest in digests(folder).items() if name not in RECORD_FILES}
    return {"digest": combined_digest(files)}


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model folder; raise UsageError where it is none."""
    files = sorted({path for pattern in MODEL_FILES for path in folder.glob(pattern) if path.name not in RECORD_FILES})
    if not any(path.name == "config.json" for path in files):
        raise UsageError(f"{folder} is no model folder: it has no config.json.")
    return files


def exported_variant(folder: Path) -> VariantInfo | None:
    """Return what an exported folder holds; None for a model."""
    info = find_info(folder)
    return info.variant if info and info.variant and info.variant.format != "torch" else None


def refuse_exported(folder: Path) -> None:
    """Refuse an exported folder where a model to train or to convert is expected."""
    if (held := exported_variant(folder)) is not None:
        raise ModelError(
            f"{folder} holds an exported model ({held.name}): it can be run, but not loaded or trained.",
            hint="the finetune, distill and prune steps of its run are models, in .steps beside the run's folder",
        )


def source_name(source: Any) -> Any:
    """A local path's last part; anything that is no path here is unchanged."""
    if not isinstance(source, str) or not expanded_user(source).exists():
        return source
    return expanded_user(source).resolve().name
