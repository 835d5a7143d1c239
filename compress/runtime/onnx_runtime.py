"""ONNX Runtime: exported models, without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as states

from compress.environment import describe_cpu
from compress.errors import DeviceUnavailable, ModelError, nearest
from compress.formats import FORMATS
from compress.model_folder.model_info import VariantInfo
from compress.runtime.model_formats import ModelFile, find_graph
from compress.runtime.predictor import (
    Placement,
    answers,
    cast_inputs,
    describe_predictor,
    first_line,
    is_memory,
    load_failure,
    run_failure,
)
from compress.tasks.base import Arrays

ONNX_FILE = FORMATS["onnx"].files[0]

Provider = tuple[str, dict[str, str]]
"""The name of an execution provider, and its options."""

PROVIDERS: dict[str, tuple[Provider, ...]] = {
    "cpu": (("CPUExecutionProvider", {}),),
    # By itself it rounds fp32 products to TF32, which is no fp32 any more and is not what torch does.
    "cuda": (("CUDAExecutionProvider", {"use_tf32": "0"}),),
}

SESSION_KEYS = ("disabled_optimizers", "guard_overflow")
"""Options that a folder may set: graph optimizers to disable, and whether its INT8 products need `GUARD` (the default;
weights that cannot saturate do not). This is an allow-list: a foreign folder must not choose libraries to load."""

TYPES = {"tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(bool)": "bool", "tensor(float)": "float32"}
"""Types of numpy, by ONNX Runtime's name for those that inputs may have."""

ORT_ERRORS: tuple[type[Exception], ...] = (
    RuntimeError,
    MemoryError,
    *(each for each in vars(states).values() if isinstance(each, type) and issubclass(each, Exception)),
)
"""What ONNX Runtime raises; its own errors have no base class in common below Exception."""

GUARD = "session.x64quantprecision"
"""On x86 processors without VNNI, products of unsigned activations and signed 8-bit weights overflow 16 bits, and
outputs are wrong. With this option ONNX Runtime uses an exact, slower kernel there. Elsewhere it must stay off: on a
processor with AMX it used the slow kernel too, and a small encoder took three times as long for the same outputs."""

SILENT = 4
"""Log level: errors are raised, and nothing is logged."""


class OnnxPredictor:
    """An ONNX Runtime session behind the Predictor interface; a session runs for several threads at once."""

    def __init__(self, session: ort.InferenceSession, placement: Placement, variant: VariantInfo) -> None:
        self._session = session
        self._placement = placement
        self._variant = variant
        self._types = {given.name: TYPES.get(given.type) for given in session.get_inputs()}
        self._outputs = answers([given.name for given in session.get_outputs()])
        self.inputs = tuple(self._types)

    def predict(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run one padded batch; arrays are cast to the types the model takes."""
        feed = cast_inputs(self._types, arrays)
        try:
            results = self._session.run(self._outputs, feed)
        except ORT_ERRORS as error:
            raise run_failure("ONNX Runtime", self._variant.name, feed, error) from error
        return {name: np.asarray(result, dtype=np.float32) for name, result in zip(self._outputs, results, strict=True)}

    def describe(self) -> dict[str, Any]:
        """Describe the configuration, with the options of the first provider but without paths of this machine."""
        providers = self._session.get_providers()
        options = self._session.get_provider_options()[providers[0]]
        options = {name: value for name, value in options.items() if not name.endswith("_path")}
        facts = describe_predictor(self._variant, self._placement, version=ort.__version__, options=options)
        return {**facts, "providers": providers}


def open_onnx(model_file: ModelFile, variant: VariantInfo, placement: Placement) -> OnnxPredictor:
    """Open an exported folder or a bare ONNX file."""
    return OnnxPredictor(make_session(model_file.file, placement, variant.session), placement, variant)


def existing_onnx(folder: Path) -> Path:
    """Return the ONNX file in ``folder``."""
    file = find_graph(folder, "onnx")
    if file is None:
        raise ModelError(f"{folder} holds no {ONNX_FILE}.")
    return file


def make_session(
    model: Path | bytes,
    placement: Placement,
    settings: Mapping[str, Any],
    providers: Sequence[Provider] | None = None,
) -> ort.InferenceSession:
    """Return a session with exactly ``placement.threads`` threads on exactly ``placement.device``.

    Args:
        model: an ONNX file, or its content.
        placement: the device and the number of threads.
        settings: options of the folder, a subset of `SESSION_KEYS`.
        providers: instead of those of the device; the first must start, the others run what it does not support.
    """
    chosen = PROVIDERS[placement.device] if providers is None else providers
    first = chosen[0][0]
    check_provider(first)
    unknown = [key for key in settings if key not in SESSION_KEYS]
    if unknown:
        raise ModelError(f"no session setting is called '{unknown[0]}'{nearest(unknown[0], SESSION_KEYS)}")
    options = ort.SessionOptions()
    if settings.get("guard_overflow", True) and not describe_cpu().has_vnni:  # also on where it is unknown
        options.add_session_config_entry(GUARD, "1")
    options.intra_op_num_threads = placement.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = SILENT
    try:
        session = ort.InferenceSession(
            model if isinstance(model, bytes) else str(model),
            sess_options=options,
            providers=list(chosen),
            disabled_optimizers=list(settings.get("disabled_optimizers", ())),
            enable_fallback=False,  # it prints on standard output
        )
    except ORT_ERRORS as error:
        if placement.device != "cpu" and not is_memory(error):
            make_session(model, replace(placement, device="cpu"), settings)  # raises where the model is at fault
            raise DeviceUnavailable(f"ONNX Runtime could not start {first}: {first_line(error)}") from error
        raise load_failure("ONNX Runtime", "the model" if isinstance(model, bytes) else model, error) from error
    # A build for other CUDA libraries than the installed ones falls back without an error.
    if first not in session.get_providers():
        raise DeviceUnavailable(f"ONNX Runtime could not start {first} and fell back to {session.get_providers()[0]}.")
    return session


def check_provider(name: str) -> None:
    """Refuse an execution provider that this ONNX Runtime was built without."""
    if name not in ort.get_available_providers():
        raise DeviceUnavailable(
            f"this ONNX Runtime has no {name}.",
            hint="onnxruntime-gpu has it; it replaces onnxruntime, the two cannot be installed together",
        )
    if name != "CPUExecutionProvider":
        ort.preload_dlls()  # CUDA and cuDNN as pip installs them; without it only the system's are found
