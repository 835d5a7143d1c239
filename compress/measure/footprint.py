"""How big a model is: its parameters, and the bytes of every file that predicting needs."""

from __future__ import annotations

from pathlib import Path

from compress.errors import ModelError
from compress.folder import INFO_FILE, read_info
from compress.measure.facts import Facts

WEIGHTS = (".safetensors", ".onnx", ".onnx.data", ".onnx_data", ".bin", ".pt", ".pth")
"""Endings of files that hold weights (an ONNX model above 2 GB keeps them beside it)."""
TOLD_ONLY = ("README.md", "LICENSE", "digests.json", ".gitattributes")
"""Files of a published folder that tell about the model and are not read to predict."""
TOLD_FOLDERS = ("report",)


class Footprint(Facts):
    """The size of one model folder or variant."""

    parameters: int | None
    """None where the folder does not say (a bare ONNX file)."""
    embedding_parameters: int | None
    bytes_total: int
    """All files that predicting needs: weights, config, tokenizer."""
    bytes_weights: int


def needed_files(folder: Path) -> list[Path]:
    """The files under ``folder`` that predicting reads."""
    if folder.is_file():
        return [folder, *sorted(folder.parent.glob(folder.name + "[._]data"))]
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.name not in TOLD_ONLY
        and path.relative_to(folder).parts[0] not in TOLD_FOLDERS
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


def footprint(folder: Path) -> Footprint:
    """Measure a model folder, a variant's folder or a bare ONNX file."""
    files = needed_files(folder) if folder.exists() else []
    weights = [path for path in files if path.name.endswith(WEIGHTS)]
    if not weights:
        raise ModelError(f"{folder} holds no weights.", hint=f"expected a file that ends in {', '.join(WEIGHTS)}")
    shape = read_info(folder).shape if (folder / INFO_FILE).is_file() else None
    return Footprint(
        parameters=shape.parameters if shape else None,
        embedding_parameters=shape.embedding_parameters if shape else None,
        bytes_total=sum(path.stat().st_size for path in files),
        bytes_weights=sum(path.stat().st_size for path in weights),
    )
