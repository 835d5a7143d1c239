"""Which files are models, and in which runtimes each form of model runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from compress.errors import ModelError, nearest
from compress.model_info import FolderInfo, VariantInfo, find_info

Form = Literal["torch", "onnx", "openvino"]

FILES: dict[Form, tuple[str, ...]] = {
    "onnx": ("model.onnx", "onnx/model.onnx"),
    "openvino": ("openvino_model.xml", "openvino/openvino_model.xml"),
    "torch": ("config.json",),
}
"""The file of a folder that tells its form; the second of two is the layout of Hugging Face repositories. The first
form that is found decides: a folder with an exported graph beside weights runs as the graph."""

TORCH_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""The weights of a model folder; the first that is there is read."""

ENDINGS: dict[str, Form] = {".onnx": "onnx", ".xml": "openvino"}
"""Endings of bare files."""

NO_MODELS = {
    ".pt": "a pickled module",
    ".pth": "a pickled module",
    ".pkl": "a pickle",
    ".bin": "weights without the model they belong to",
    ".safetensors": "weights without the model they belong to",
}
"""What files with these endings are, which people take for models."""

OPENVINO_ROOT = re.compile(rb"(\xef\xbb\xbf)?\s*((<\?.*?\?>|<!--.*?-->)\s*)*<net[\s/>]", re.DOTALL)
"""How the XML of an OpenVINO model begins."""
BEGINNING = 4096
"""Bytes of a file in which that shows."""

EXPECTED = (
    "expected a file that ends in .onnx or .xml (OpenVINO), or a folder with model.onnx, openvino_model.xml, or "
    "config.json and model.safetensors"
)

RUNTIME_OF: dict[Form, str] = {"torch": "torch", "onnx": "onnxruntime", "openvino": "openvino"}
"""The plainest runtime of each form."""


def _torch(name: str, precision: str, runtime: str = "torch") -> VariantInfo:
    return VariantInfo(name=name, format="torch", precision=precision, runtime=runtime)


FP32 = _torch("torch-fp32", "fp32")
"""How a model folder runs when nothing else is asked."""
BF16 = _torch("torch-bf16", "bf16")
FP16 = _torch("torch-fp16", "fp16")
COMPILED = _torch("torch-compiled", "fp32", "torch-compiled")
COMPILED_BF16 = _torch("torch-compiled-bf16", "bf16", "torch-compiled")
COMPILED_FP16 = _torch("torch-compiled-fp16", "fp16", "torch-compiled")
GRAPH_BF16 = _torch("torch-graph-bf16", "bf16", "torch-graph")
GRAPH_FP16 = _torch("torch-graph-fp16", "fp16", "torch-graph")
TENSORRT = VariantInfo(name="onnx-tensorrt", format="onnx", precision="fp16", runtime="onnxruntime-tensorrt")

STORED_PRECISION = "unknown"
"""The precision of what does not say: numbers are computed as the file holds them, never rounded further."""

RUN_MODES: Mapping[str, VariantInfo] = MappingProxyType(
    {
        way.name: way
        for way in (
            FP32,
            BF16,
            FP16,
            COMPILED,
            COMPILED_BF16,
            COMPILED_FP16,
            GRAPH_BF16,
            GRAPH_FP16,
            VariantInfo(name="onnxruntime", format="onnx", precision=STORED_PRECISION, runtime="onnxruntime"),
            TENSORRT,
            VariantInfo(name="openvino", format="openvino", precision=STORED_PRECISION, runtime="openvino"),
            VariantInfo(name="openvino-bf16", format="openvino", precision="bf16", runtime="openvino"),
        )
    }
)
"""Ways to run a model that is there already, without building anything: what may stand behind a model's name."""


@dataclass(frozen=True)
class ModelFile:
    """What stands at a path."""

    path: Path
    """As it was given."""
    form: Form
    graph: Path | None
    """The file that holds the graph; None for a model folder."""
    info: FolderInfo | None
    """What compress.json says of it."""

    @property
    def variant(self) -> VariantInfo:
        """How it runs when nothing else is asked."""
        if self.info is not None and self.info.variant is not None:
            return self.info.variant
        if self.form == "torch":
            return FP32
        return VariantInfo(name=self.form, format=self.form, precision=STORED_PRECISION, runtime=RUNTIME_OF[self.form])


def describe_model_file(path: Path, wanted: Collection[Form] = ()) -> ModelFile:
    """What model stands at ``path``, from names, compress.json and the first bytes of bare files; nothing is loaded.

    Args:
        path: of a folder or a bare file.
        wanted: the forms that the runtime reads, the best first, where one is asked for: of a folder that holds several
            forms and does not say which one it is, one of these is taken before the others.

    Raises:
        ModelError: nothing is there, or no runtime knows it.
    """
    if not path.exists():
        raise ModelError(f"there is no model at {path}.", hint=EXPECTED)
    if path.is_file():
        return _bare(path)
    info = find_info(path)
    found = {form: _first(path, FILES[form]) for form in dict.fromkeys((*wanted, *FILES))}
    asked: Form | None = _form(info.variant.format) if info and info.variant else None
    for form, file in found.items():
        if file is not None and asked in (None, form):
            return ModelFile(path, form, None if form == "torch" else _whole(file), info)
    if asked is not None:
        raise ModelError(f"{path} holds no {FILES[asked][0]}, and its compress.json says that it does.")
    what = "is an empty folder" if not any(path.iterdir()) else "is a folder without a model"
    raise ModelError(f"{path} {what}.", hint=EXPECTED)


def run_mode_named(name: str) -> VariantInfo:
    """The way to run a model that has this name."""
    if name not in RUN_MODES:
        raise ModelError(f"no way to run a model is called '{name}'{nearest(name, RUN_MODES)}")
    return RUN_MODES[name]


def _bare(path: Path) -> ModelFile:
    form = ENDINGS.get(path.suffix.lower())
    if form is None:
        what = f"a file that ends in {path.suffix}" if path.suffix else "a file without an ending"
        what = NO_MODELS.get(path.suffix.lower(), what)
        raise ModelError(f"{path} is no model: no runtime knows {what}.", hint=EXPECTED)
    try:
        with path.open("rb") as stream:
            beginning = stream.read(BEGINNING)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not beginning:
        raise ModelError(f"{path} is empty.")
    if form == "openvino" and not OPENVINO_ROOT.match(beginning):
        raise ModelError(f"{path} is no OpenVINO model: those are XML whose root is <net>.")
    return ModelFile(path, form, _whole(path), None)


def _whole(graph: Path) -> Path:
    """Refuse an OpenVINO graph whose weights, a file of their own, stayed behind."""
    weights = graph.with_suffix(".bin")
    if graph.suffix.lower() == ".xml" and not weights.is_file():
        raise ModelError(f"{graph} has its weights in {weights.name}, which is not beside it.")
    return graph


def _first(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _form(name: str) -> Form:
    """The form that compress.json names, if this version knows it."""
    for form in FILES:
        if form == name:
            return form
    raise ModelError(f"no format is called '{name}'{nearest(name, FILES)}")
