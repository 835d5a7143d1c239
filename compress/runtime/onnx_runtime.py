"""ONNX Runtime: exported models, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as states

from compress.environment import describe_cpu
from compress.errors import ModelError, NotHere, nearest
from compress.folder import FolderInfo, VariantInfo
from compress.runtime.predictor import Place
from compress.tasks.kind import Arrays

ONNX_FILE = "model.onnx"
SEARCHED = (ONNX_FILE, f"onnx/{ONNX_FILE}")
"""Where a folder keeps its ONNX model; the second is the Hugging Face layout."""

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}

SESSION_KEYS = ("disabled_optimizers", "guard_overflow")
"""Settings that a folder may bring along: names of graph optimizers to leave out, and whether its INT8 products need
`GUARD` (the default; weights of 7 bits do not). An allow-list: a foreign folder must not choose libraries to load."""

TYPES: dict[str, type[np.generic]] = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(float)": np.float32,
}
"""Array types that models take, by ONNX Runtime's name for them."""

ORT_ERRORS = (
    states.EPFail,
    states.Fail,
    states.InvalidArgument,
    states.InvalidGraph,
    states.InvalidProtobuf,
    states.NoSuchFile,
    states.NotImplemented,
    states.RuntimeException,
)
"""What ONNX Runtime raises; they have no base class in common below Exception."""

GUARD = "session.x64quantprecision"
"""On x86 processors without VNNI, products of unsigned activations and signed 8-bit weights overflow 16 bits, and
answers come out wrong. With this ONNX Runtime takes an exact, slower kernel there. Elsewhere it must stay off: on a
processor with AMX it took the slow kernel too: a small encoder took three times as long, for the same answers."""

SILENT = 4
"""Nothing below a crash is logged: what goes wrong is raised."""


class OnnxPredictor:
    """An ONNX Runtime session behind the Predictor interface."""

    def __init__(self, session: ort.InferenceSession, place: Place, variant: VariantInfo) -> None:
        self._session = session
        self._place = place
        self._variant = variant
        self._types = {given.name: _array_type(given.name, given.type) for given in session.get_inputs()}
        self._outputs = [given.name for given in session.get_outputs()]
        self.inputs = tuple(self._types)

    def predict(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run one padded batch; arrays are cast to the types the model takes."""
        missing = [name for name in self.inputs if name not in arrays]
        if missing:
            raise ModelError(f"the model takes {', '.join(self.inputs)}; {', '.join(missing)} was not given.")
        feed = {name: np.ascontiguousarray(arrays[name], dtype=kind) for name, kind in self._types.items()}
        try:
            results = self._session.run(self._outputs, feed)
        except ORT_ERRORS as error:
            shapes = ", ".join(f"{name} {array.shape}" for name, array in feed.items())
            raise ModelError(
                f"ONNX Runtime cannot run {self._variant.name} on {shapes}: {_first_line(error)}"
            ) from error
        return {name: np.asarray(result, dtype=np.float32) for name, result in zip(self._outputs, results, strict=True)}

    def describe(self) -> dict[str, Any]:
        """What it runs with."""
        return {
            "runtime": "onnxruntime",
            "version": ort.__version__,
            "device": self._place.device,
            "threads": self._place.threads,
            "precision": self._variant.precision,
            "providers": self._session.get_providers(),
            "session": dict(self._variant.session),
        }


def open_onnx(path: Path, info: FolderInfo | None, variant: VariantInfo, place: Place) -> OnnxPredictor:
    """Open an exported folder or a bare ONNX file."""
    file = find_onnx(path)
    if file is None:
        raise ModelError(f"{path} holds no {ONNX_FILE}.")
    return OnnxPredictor(make_session(file, place, variant.session), place, variant)


def find_onnx(path: Path) -> Path | None:
    """The ONNX file that ``path`` is or holds."""
    if path.is_file():
        return path if path.suffix == ".onnx" else None
    return next((path / name for name in SEARCHED if (path / name).is_file()), None)


def make_session(model: Path | bytes, place: Place, settings: Mapping[str, Any]) -> ort.InferenceSession:
    """A session with exactly ``place.threads`` threads on exactly ``place.device``."""
    provider = PROVIDERS[place.device]
    if provider not in ort.get_available_providers():
        raise NotHere(
            f"this ONNX Runtime has no {provider}.",
            hint="onnxruntime-gpu has it; it replaces onnxruntime, the two cannot be installed together",
        )
    unknown = [key for key in settings if key not in SESSION_KEYS]
    if unknown:
        raise ModelError(f"no session setting is called '{unknown[0]}'{nearest(unknown[0], SESSION_KEYS)}")
    name = "the model" if isinstance(model, bytes) else str(model)
    try:
        session = ort.InferenceSession(
            model if isinstance(model, bytes) else str(model),
            sess_options=_options(place, settings),
            providers=[provider],
            disabled_optimizers=list(settings.get("disabled_optimizers", ())),
        )
    except ORT_ERRORS as error:
        raise ModelError(f"ONNX Runtime cannot read {name}: {_first_line(error)}") from error
    if provider not in session.get_providers():
        raise NotHere(f"ONNX Runtime could not start {provider} and fell back to {session.get_providers()[0]}.")
    return session


def _options(place: Place, settings: Mapping[str, Any]) -> ort.SessionOptions:
    options = ort.SessionOptions()
    if settings.get("guard_overflow", True) and not describe_cpu().has_vnni:  # to be safe also where nobody knows
        options.add_session_config_entry(GUARD, "1")
    options.intra_op_num_threads = place.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = SILENT
    return options


def _array_type(name: str, kind: str) -> type[np.generic]:
    if kind not in TYPES:
        raise ModelError(f"the model's input {name} is a {kind}; expected one of {', '.join(TYPES)}.")
    return TYPES[kind]


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
