"""Any model folder or variant becomes one Predictor: arrays in, arrays out; one runtime a file.

Adding a runtime is one file with one opening function, and one line in `RUNTIMES`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from compress.errors import ModelError, nearest
from compress.folder import FolderInfo, VariantInfo, find_info
from compress.runtime.predictor import ONE_THREAD, Place, Predictor

if TYPE_CHECKING:
    from compress.runtime.text import TextModel

RUNTIMES = {
    "torch": "compress.runtime.torch_eager:open_torch",
    "onnxruntime": "compress.runtime.onnx_runtime:open_onnx",
}
"""The function that opens a model in each runtime, `(path, info or None, variant, place) -> Predictor`.

It is imported when it is first used, so that an exported model never loads torch.
"""

Opener = Callable[[Path, FolderInfo | None, VariantInfo, Place], Predictor]

FP32 = VariantInfo(name="torch-fp32", format="torch", precision="fp32", runtime="torch")
"""How a model folder runs when nothing else is asked."""
BF16 = FP32.model_copy(update={"name": "torch-bf16", "precision": "bf16"})
FP16 = FP32.model_copy(update={"name": "torch-fp16", "precision": "fp16"})


def open_predictor(folder: Path, place: Place = ONE_THREAD, variant: VariantInfo | None = None) -> Predictor:
    """Load a model folder, an exported one, a plain Hugging Face folder or a bare ONNX file.

    Args:
        folder: a folder that holds weights, or a file that ends in ``.onnx``.
        place: the device and the number of threads.
        variant: in which variant a model folder runs, plain fp32 by default. An exported folder knows its own, with the
            session settings that were measured for it; asking for another one is an error.
    """
    info = find_info(folder)
    own = info.variant if info else None
    if own is not None and variant is not None and variant.name != own.name:
        raise ModelError(f"{folder} holds {own.name} and cannot run as {variant.name}.")
    chosen = own or variant or (FP32 if info else _guess(folder))
    return _opener(chosen)(folder, info, chosen, place)


def open(folder: str | Path, place: Place = ONE_THREAD) -> TextModel:
    """Open a folder for texts: ``compress.open("winner/cpu").predict(["a text"])``; torch only where it needs it."""
    from compress.runtime.text import TextModel

    return TextModel.open(Path(folder), place=place)


def _guess(folder: Path) -> VariantInfo:
    """The plainest way to run what does not describe itself."""
    from compress.runtime.onnx_runtime import find_onnx

    if find_onnx(folder) is not None:
        return VariantInfo(name="onnx", format="onnx", precision="unknown", runtime="onnxruntime")
    if folder.is_dir() and (folder / "config.json").is_file():
        return FP32
    raise ModelError(
        f"there is no model at {folder}.",
        hint="expected an .onnx file, or a folder with model.onnx or with config.json and model.safetensors",
    )


def _opener(variant: VariantInfo) -> Opener:
    if variant.runtime not in RUNTIMES:
        raise ModelError(f"no runtime is called '{variant.runtime}'{nearest(variant.runtime, RUNTIMES)}")
    opener: Opener = resolve_name(RUNTIMES[variant.runtime])
    return opener
