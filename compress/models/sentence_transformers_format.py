"""Reads and writes the file format of sentence-transformers for embedding models.

modules.json lists the modules of a model, one folder each: encoder, pooling, optionally a linear layer, and
normalisation. https://sbert.net describes the files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.models.embedding_model import POOLINGS, embedding_size, projection_of

MODULES = "modules.json"
TYPES = "sentence_transformers.models."
"""The package in which all versions find their modules."""
POOLING, DENSE, NORMALIZE = "1_Pooling", "2_Dense", "Normalize"
KNOWN = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Dense"])
"""Supported sequences of modules, optionally followed by Normalize: embeddings here are always unit vectors."""
LINEAR = "torch.nn.modules.linear.Identity"
WEIGHTS, WEIGHT = "model.safetensors", "linear.weight"


class Layout(NamedTuple):
    """How a folder of sentence-transformers pools and projects the encoder's outputs."""

    pooling: str
    size: int | None = None
    """Width of its linear layer, if it has one."""
    weights: Path | None = None

    def projection(self) -> Tensor | None:
        """Return the weight of its linear layer (size, width)."""
        return None if self.weights is None else load_file(self.weights)[WEIGHT]


def is_embedding_folder(folder: Path) -> bool:
    """Return whether the folder is an embedding model (cross-encoders have modules.json too)."""
    return "Pooling" in dict(_modules(folder))


def read_layout(folder: Path) -> Layout:
    """Return the layout in modules.json and the folders it names; raise `ModelError` if it is not supported."""
    modules = _modules(folder)
    kinds, folders = [kind for kind, _ in modules], dict(modules)
    if (kinds[:-1] if kinds[-1:] == [NORMALIZE] else kinds) not in KNOWN:
        raise ModelError(
            f"{folder / MODULES} lists the modules {', '.join(kinds)}; supported are Transformer, Pooling and,"
            " after them, Dense and Normalize."
        )
    pooling = _pooling(folders["Pooling"] / "config.json")
    return _dense(folders["Dense"], pooling) if "Dense" in folders else Layout(pooling)


def write_layout(folder: Path, model: PreTrainedModel, max_length: int | None) -> None:
    """Write the files that sentence-transformers needs into an embedding model's folder.

    Args:
        folder: the model folder.
        model: the model saved there.
        max_length: texts are truncated to this many tokens.
    """
    projection = projection_of(model)
    parts = {"": "Transformer", POOLING: "Pooling", **({DENSE: "Dense"} if projection is not None else {})}
    parts[f"{len(parts)}_{NORMALIZE}"] = NORMALIZE
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": TYPES + kind}
        for index, (path, kind) in enumerate(parts.items())
    ]
    _write(folder / MODULES, listed)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    width, pooling = int(model.config.hidden_size), model.config.pooling
    modes = {f"pooling_mode_{name}": name.startswith(pooling) for name in ("cls_token", "mean_tokens")}
    _write(folder / POOLING / "config.json", {"word_embedding_dimension": width, **modes})
    if projection is not None:
        size = embedding_size(model)
        settings = {"in_features": width, "out_features": size, "bias": False, "activation_function": LINEAR}
        _write(folder / DENSE / "config.json", settings)
        save_file({WEIGHT: projection.contiguous()}, folder / DENSE / WEIGHTS, {"format": "pt"})


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Return each module's class name, whose package differs between versions, and its folder."""
    listed = _read(folder / MODULES) if (folder / MODULES).is_file() else []
    return [(str(module.get("type")).rpartition(".")[2], folder / str(module.get("path"))) for module in listed]


def _pooling(path: Path) -> str:
    """Return the pooling mode from a config of old versions (one flag per mode) or new ones."""
    config = _read(path)
    flags = {name.removeprefix("pooling_mode_") for name, on in config.items() if on is True}
    short = {"cls_token": "cls", "mean_tokens": "mean"}
    mode = config.get("pooling_mode") or sorted(short.get(name, name) for name in flags - {"include_prompt"})
    modes = [mode] if isinstance(mode, str) else list(mode)
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise ModelError(f"{path} pools by {' and '.join(modes) or 'nothing'}; supported: {', '.join(POOLINGS)}.")
    return str(modes[0])


def _dense(folder: Path, pooling: str) -> Layout:
    config = _read(folder / "config.json")
    unsupported = config.get("bias", True) or config.get("activation_function") != LINEAR or config.get("use_residual")
    if unsupported or not (folder / WEIGHTS).is_file():
        raise ModelError(
            f"{folder} is not supported, only a linear layer without bias in {WEIGHTS}; it has the activation"
            f" {str(config.get('activation_function')).rpartition('.')[2]}, bias: {config.get('bias', True)}."
        )
    return Layout(pooling, int(config["out_features"]), folder / WEIGHTS)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
