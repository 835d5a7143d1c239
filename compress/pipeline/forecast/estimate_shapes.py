"""The shapes that a recipe's models will have, from configs and settings alone: for estimates, before anything is made.

torch is not loaded. What cannot be known here (a checkpoint that is still on the hub) is None.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compress.errors import CompressError
from compress.families import FAMILIES
from compress.model_info import INFO_FILE, ShapeInfo, read_info
from compress.model_sources import folder_of
from compress.recipe.training_schema import Prune, Student


def local_folder(source: str, revision: str | None = None, cards: Sequence[Path] = ()) -> Path | None:
    """Where a source's files lie on this machine; the hub is not asked."""
    try:
        return folder_of(source, revision, cards, cached)
    except CompressError:
        return None


def cached(name: str, revision: str) -> Path | None:
    """Where the files of a repository of the hub lie on this machine."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    found = try_to_load_from_cache(name, "config.json", revision=revision)
    return Path(found).parent if isinstance(found, str) else None


def shape_of_folder(folder: Path | None) -> ShapeInfo | None:
    """What a model folder's compress.json tells, else its config.json."""
    if folder is None:
        return None
    try:
        told = read_info(folder).shape if (folder / INFO_FILE).is_file() else None
        return told or shape_of_config(json.loads((folder / "config.json").read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, CompressError):
        return None


def shape_of_config(config: dict[str, Any]) -> ShapeInfo:
    """The shape behind a config.json of any family; KeyError where it tells less."""
    family = str(config["model_type"])
    hidden = int(config["dim" if family == "distilbert" else "hidden_size"])
    heads = int(config["n_heads" if family == "distilbert" else "num_attention_heads"])
    depth = int(config["n_layers" if family == "distilbert" else "num_hidden_layers"])
    ffn = int(config["hidden_dim" if family == "distilbert" else "intermediate_size"])
    narrow = int(config.get("embedding_size") or hidden)
    return _shape(
        ShapeInfo(
            family=family,
            hidden=hidden,
            heads=(heads,) * depth,
            ffn=(ffn,) * depth,
            vocabulary=int(config["vocab_size"]),
            parameters=0,
            embedding_parameters=(int(config["vocab_size"]) + int(config.get("max_position_embeddings", 0))) * narrow,
            head_size=hidden // heads,
            embedding_size=narrow if narrow != hidden else None,
        )
    )


def student_shape(teacher: ShapeInfo | None, student: Student, cards: Sequence[Path] = ()) -> ShapeInfo | None:
    """The shape of the student that a recipe describes; a checkpoint's own where it names one."""
    origin = shape_of_folder(local_folder(student.source, student.revision, cards)) if student.source else teacher
    if origin is None or origin.head_size is None:
        return None
    depth, hidden = origin.layers, student.hidden or origin.hidden
    count = len(student.layers) if isinstance(student.layers, tuple) else _count(student.layers, depth)
    ratio = hidden / origin.hidden
    heads = student.heads or (max(origin.heads) if ratio == 1 else max(1, hidden // origin.head_size))
    ffn = student.ffn or round(max(origin.ffn) * ratio)
    narrow = student.factors or origin.embedding_size
    vectors = origin.embedding_parameters / (origin.embedding_size or origin.hidden) * (narrow or hidden)
    return _shape(
        origin.model_copy(
            update={
                "hidden": hidden,
                "heads": (heads,) * count,
                "ffn": (ffn,) * count,
                "embedding_parameters": round(vectors),
                "embedding_size": narrow if narrow != hidden else None,
            }
        )
    )


def pruned_shape(parent: ShapeInfo | None, settings: Prune) -> ShapeInfo | None:
    """The parent with the shares removed, evenly: which layers lose most shows only when it is cut."""
    if parent is None:
        return None
    heads, ffn = (1 - settings.heads, 1 - settings.ffn) if settings.to is None else (settings.to.parameters,) * 2
    return _shape(
        parent.model_copy(
            update={
                "heads": tuple(max(1, round(each * heads)) for each in parent.heads),
                "ffn": tuple(max(1, round(each * ffn)) for each in parent.ffn),
            }
        )
    )


def _count(layers: float | None, depth: int) -> int:
    if layers is None:
        return depth
    return max(1, round(layers * depth)) if layers < 1 else int(layers)


def _shape(shape: ShapeInfo) -> ShapeInfo:
    """With its parameters counted: embeddings, and the matrices of every layer (one for all where they are shared)."""
    size, products = shape.head_size or 0, 3 if FAMILIES[shape.family].gated_ffn else 2
    layers = [
        shape.hidden * (4 * heads * size + products * ffn + 10) + ffn
        for heads, ffn in zip(shape.heads, shape.ffn, strict=True)
    ]
    matrices = layers[0] if FAMILIES[shape.family].shared_layers else sum(layers)
    return shape.model_copy(update={"parameters": shape.embedding_parameters + matrices + shape.hidden**2})
