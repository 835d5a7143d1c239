"""Checks that the layers of a checkpoint have the sizes that its config.json states, from the header of its weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from compress.errors import ModelError
from compress.families import family_named
from compress.model_info import ShapeInfo
from compress.storage.safetensors_file import read_header

WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"


def check_layer_sizes(folder: Path | None, shape: ShapeInfo | None) -> None:
    """Refuse a checkpoint in which a layer has more or fewer heads or neurons than ``shape``, which is its config's.

    That is how tools leave a pruned model whose config cannot describe it. Other formats are checked when they load.
    """
    if folder is None or shape is None:
        return
    family, size = family_named(shape.family), shape.head_size or shape.hidden // max(shape.heads)
    if not family.prunable or family.query is None:
        return
    rows = {name: count for file in _weight_files(folder) for name, count in _rows_of_weights(file)}
    for layer, (heads, ffn) in enumerate(zip(shape.heads, shape.ffn, strict=True)):
        for part, path, wanted in (("queries", family.query, heads * size), ("FFN neurons", family.ffn_in, ffn)):
            ending = f"{family.layers}.{layer}.{path}.weight"
            stored = next((count for name, count in rows.items() if name.endswith(ending)), wanted)
            if stored != wanted:
                raise ModelError(
                    f"{folder}: layer {layer} has {stored} {part}, and its config.json states {wanted}.",
                    hint="another tool pruned it and did not record how: prune the model from before that here",
                )


def _weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint, of which there are several where they have an index."""
    if (folder / WEIGHTS_FILE).is_file():
        return [folder / WEIGHTS_FILE]
    try:
        names = json.loads((folder / INDEX_FILE).read_bytes())["weight_map"].values()
        return [folder / name for name in sorted(set(names))]
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return []


def _rows_of_weights(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the name and the first dimension of every tensor of a safetensors file; nothing of one that is damaged."""
    try:
        with path.open("rb") as file:
            header = read_header(file)
        yield from [(name, entry["shape"][0]) for name, entry in header.items() if entry.get("shape")]
    except (OSError, ValueError, AttributeError, TypeError, OverflowError, MemoryError):
        return  # loading it says what is wrong
