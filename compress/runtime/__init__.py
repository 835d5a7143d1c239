"""Any model folder or variant becomes one Predictor: arrays in, arrays out; one runtime a file.

Adding a runtime is one file with one opening function, and one line in `RUNTIMES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING

from compress.errors import DeviceUnavailable, ModelError, nearest
from compress.model_info import FolderInfo, VariantInfo
from compress.runtime.model_formats import (
    BF16,
    FP16,
    FP32,
    RUN_MODES,
    STORED_PRECISION,
    Form,
    ModelFile,
    describe_model_file,
    run_mode_named,
)
from compress.runtime.predictor import ONE_THREAD, Placement, Predictor, TimedOnDevice

if TYPE_CHECKING:
    from compress.runtime.text_model import TextModel

__all__ = [
    "BF16",
    "FP16",
    "FP32",
    "RUNTIMES",
    "RUN_MODES",
    "ModelFile",
    "Place",
    "Placement",
    "Predictor",
    "Runtime",
    "TimedOnDevice",
    "describe_model_file",
    "open",
    "open_predictor",
    "run_mode_named",
]

Place = Placement
"""The name that model cards of earlier versions import."""

Opener = Callable[[Path, FolderInfo | None, VariantInfo, Placement], Predictor]


@dataclass(frozen=True)
class Runtime:
    """A way to compute."""

    open: str
    """`module:function` of an `Opener`, imported when it is first used: an exported model never loads torch."""
    reads: tuple[Form, ...]
    """Forms of models it can open."""
    needs: str
    """What it needs, in words."""
    devices: tuple[str, ...]
    extra: str | None = None
    """The extra that brings it; None: the base install, or something that no extra can bring."""


RUNTIMES: Mapping[str, Runtime] = MappingProxyType(
    {
        "torch": Runtime(
            "compress.runtime.torch_eager:open_torch", ("torch",), "PyTorch and transformers", ("cpu", "cuda"), "train"
        ),
        "torch-compiled": Runtime(
            "compress.runtime.torch_compiled:open_compiled",
            ("torch",),
            "PyTorch; a C++ compiler on the CPU, Triton on CUDA",
            ("cpu", "cuda"),
            "train",
        ),
        "torch-graph": Runtime(
            "compress.runtime.torch_graph:open_graph", ("torch",), "PyTorch and a CUDA device", ("cuda",), "train"
        ),
        "onnxruntime": Runtime(
            "compress.runtime.onnx_runtime:open_onnx",
            ("onnx",),
            "ONNX Runtime; on CUDA onnxruntime-gpu instead",
            ("cpu", "cuda"),
        ),
        "onnxruntime-tensorrt": Runtime(
            "compress.runtime.onnx_tensorrt:open_tensorrt",
            ("onnx",),
            "onnxruntime-gpu, TensorRT's own libraries and a CUDA device",
            ("cuda",),
        ),
        "openvino": Runtime(
            "compress.runtime.openvino_runtime:open_openvino", ("openvino", "onnx"), "OpenVINO", ("cpu",), "openvino"
        ),
    }
)
"""Every runtime there is."""


def open_predictor(folder: Path, placement: Placement = ONE_THREAD, variant: VariantInfo | None = None) -> Predictor:
    """Load a model folder, an exported one, a plain Hugging Face folder or a bare ONNX or OpenVINO file.

    Args:
        folder: a folder that holds weights, or a file that ends in ``.onnx`` or ``.xml``.
        placement: the device and the number of threads.
        variant: how it runs: a model folder plain fp32 by default, or as any of `RUN_MODES` that torch has. An exported
            folder knows its own variant, with the session settings that were measured for it; asking for another one
            is an error, but it may run in another runtime that reads its form (``RUN_MODES["openvino"]`` for ONNX).
    """
    found = describe_model_file(folder, runtime_of(variant).reads if variant else ())
    chosen = _chosen(found, variant)
    runtime = runtime_of(chosen)
    if found.form not in runtime.reads:
        reads = " and ".join(runtime.reads)
        raise ModelError(
            f"{folder} is a model in the form {found.form}; {chosen.runtime} reads {reads}.", _way_on(found, runtime)
        )
    if placement.device not in runtime.devices:
        raise DeviceUnavailable(f"{chosen.runtime} runs on {' and '.join(runtime.devices)}, not on {placement.device}.")
    opener: Opener = resolve_name(runtime.open)
    return opener(folder, found.info, chosen, placement)


def open(folder: str | Path, placement: Placement | None = None) -> TextModel:
    """Open a folder for texts: ``compress.open("winner/cpu").predict(["a text"])``; torch only where it needs it.

    Args:
        folder: a model folder or an exported one.
        placement: where it runs; by default on one thread of the CPU, or on CUDA where its runtime knows nothing else.
    """
    from compress.runtime.text_model import TextModel

    return TextModel.open(Path(folder), placement=placement or _default_placement(Path(folder)))


def _default_placement(folder: Path) -> Placement:
    devices = runtime_of(describe_model_file(folder).variant).devices
    return ONE_THREAD if "cpu" in devices else Placement("cuda")


def runtime_of(variant: VariantInfo) -> Runtime:
    """The runtime that serves a variant."""
    if variant.runtime not in RUNTIMES:
        raise ModelError(f"no runtime is called '{variant.runtime}'{nearest(variant.runtime, RUNTIMES)}")
    return RUNTIMES[variant.runtime]


def _way_on(found: ModelFile, runtime: Runtime) -> str | None:
    """The command that makes of a model folder what the runtime reads; of other forms nothing does."""
    if found.form != "torch" or "onnx" not in runtime.reads:
        return None
    return f"compress export {found.path} OUT" + (" --as openvino" if "openvino" in runtime.reads else "")


def _chosen(found: ModelFile, variant: VariantInfo | None) -> VariantInfo:
    """The variant to run, where an exported folder has one of its own."""
    own = found.info.variant if found.info else None
    if variant is None:
        return found.variant
    if own is None or own.name == variant.name:
        return own or variant
    plain = variant.precision == STORED_PRECISION
    if plain and variant.runtime == own.runtime:
        return own
    if variant.name in RUN_MODES and found.form in runtime_of(variant).reads:
        return variant.model_copy(update={"precision": own.precision}) if plain else variant
    raise ModelError(f"{found.path} holds {own.name} and cannot run as {variant.name}.")
