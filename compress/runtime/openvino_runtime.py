"""OpenVINO: its own files, and ONNX files as they are, on the CPU; without torch."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from math import isnan
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.environment import require
from compress.errors import ModelError, nearest
from compress.model_info import FolderInfo, VariantInfo
from compress.runtime.device_info import describe_device
from compress.runtime.model_formats import describe_model_file
from compress.runtime.predictor import Placement, check_inputs
from compress.runtime.runtime_errors import load_failure, run_failure
from compress.tasks.base import Arrays

TYPES: dict[str, type[np.generic]] = {"i64": np.int64, "i32": np.int32, "boolean": np.bool_, "f32": np.float32}
"""Array types that models take, by OpenVINO's name for them."""

HINTS = {"fp32": "f32", "int8": "f32", "unknown": "f32", "bf16": "bf16", "fp16": "f16"}
"""The precision of everything that is not INT8. It is always set: by default OpenVINO computes fp32 models in bf16 on
processors that have it, which is faster and not what was requested."""

OPENVINO_ERRORS = (RuntimeError, ValueError, MemoryError)
"""Errors that OpenVINO raises."""

REPORTED = ("INFERENCE_PRECISION_HINT", "NUM_STREAMS", "PERFORMANCE_HINT", "ENABLE_CPU_PINNING", "SCHEDULING_CORE_TYPE")
"""Settings that are reported as OpenVINO applied them."""


class OpenvinoPredictor:
    """A compiled OpenVINO model; each caller takes a request of its own."""

    def __init__(self, build: Callable[[], Any], placement: Placement, variant: VariantInfo, version: str) -> None:
        compiled = build()
        self._build = build
        self._compiled = compiled
        self._broken = False
        self._building = Lock()
        self._placement = placement
        self._variant = variant
        self._version = version
        self._types = {port.get_any_name(): _array_type(port) for port in compiled.inputs}
        self._outputs = [port.get_any_name() for port in compiled.outputs]
        self._idle: deque[Any] = deque()
        self.inputs = tuple(self._types)

    def predict(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run one padded batch; arrays are cast to the types the model takes."""
        check_inputs(self.inputs, arrays)
        feed = {name: np.ascontiguousarray(arrays[name], dtype=kind) for name, kind in self._types.items()}
        request, idle = self._request()
        try:
            outputs = self._infer(request, feed)
        except OPENVINO_ERRORS as error:
            self._broken = True
            raise run_failure("OpenVINO", self._variant.name, feed, error) from error
        idle.append(request)
        return outputs

    def _infer(self, request: Any, feed: Arrays) -> Arrays:
        """Run, and run again where no outputs were written, in a way that reports the error.

        With one thread OpenVINO's plain call ignores errors (too little memory, too few positions) and leaves the last
        batch's outputs in place; its asynchronous call reports them, and takes longer.
        """
        for output in self._outputs_of(request):
            if output.size and output.dtype.kind == "f":
                output.flat[0] = np.nan
        outputs = list(request.infer(feed, share_inputs=True, share_outputs=True).values())
        if any(not output.size or isnan(output.flat[0]) for output in outputs):
            request.start_async(feed, share_inputs=True)
            request.wait()
            outputs = self._outputs_of(request)
        # Copies: the request writes its next results to the same memory.
        return {name: np.array(output, np.float32) for name, output in zip(self._outputs, outputs, strict=True)}

    def _outputs_of(self, request: Any) -> list[NDArray[Any]]:
        return [request.get_output_tensor(index).data for index in range(len(self._outputs))]

    def describe(self) -> dict[str, Any]:
        """Describe the configuration."""
        compiled = self._compiled
        return {
            "runtime": "openvino",
            "version": self._version,
            **describe_device(self._placement),
            "threads": compiled.get_property(
                "INFERENCE_NUM_THREADS"
            ),  # fewer than requested where there are fewer cores
            "precision": self._variant.precision,
            "session": dict(self._variant.session),
            "options": {name: _json_value(compiled.get_property(name)) for name in REPORTED},
            "uses": _instructions(compiled),
        }

    def _request(self) -> tuple[Any, deque[Any]]:
        """Return an idle request and the queue to return it to.

        After a failure the model is compiled again: its parts remember the failed shapes, and may refuse good ones.
        """
        with self._building:
            if self._broken:
                self._compiled = self._build()
                self._idle = deque()
                self._broken = False
            compiled, idle = self._compiled, self._idle
        try:
            return idle.pop(), idle
        except IndexError:
            return compiled.create_infer_request(), idle


def open_openvino(path: Path, info: FolderInfo | None, variant: VariantInfo, placement: Placement) -> OpenvinoPredictor:
    """Open an exported folder, or a bare .xml or .onnx file."""
    graph = describe_model_file(path, ("openvino", "onnx")).graph
    if graph is None:
        raise ModelError(f"{path} holds no graph that OpenVINO reads.")
    if variant.session:
        raise ModelError(f"openvino has no session settings; {path} sets {', '.join(variant.session)}.")
    openvino = load_openvino()
    chosen = settings(variant, placement)

    def build() -> Any:
        try:
            return openvino.Core().compile_model(str(graph), "CPU", chosen)
        except OPENVINO_ERRORS as error:
            raise load_failure("OpenVINO", str(graph), error) from error

    return OpenvinoPredictor(build, placement, variant, openvino.__version__.partition("-")[0])


def settings(variant: VariantInfo, placement: Placement) -> dict[str, Any]:
    """Return the settings: one stream with exactly the given threads, on the cores that the process may use."""
    if variant.precision not in HINTS:
        raise ModelError(f"openvino has no precision '{variant.precision}'{nearest(variant.precision, HINTS)}")
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": placement.threads,
        "INFERENCE_PRECISION_HINT": HINTS[variant.precision],
        # The caller chooses the cores; OpenVINO would pin its threads to other ones.
        "ENABLE_CPU_PINNING": False,
        "SCHEDULING_CORE_TYPE": "ANY_CORE",
        "ENABLE_HYPER_THREADING": True,
    }


def load_openvino() -> ModuleType:
    """Import OpenVINO without the library with which it reports every import over the network.

    Neither measuring nor predicting sends anything over the network.
    """
    name = "openvino_telemetry"
    if name in sys.modules or "openvino" in sys.modules:
        return require("openvino", "openvino")
    sys.modules[name] = None  # type: ignore[assignment]  # how Python spells "cannot be imported"
    try:
        return require("openvino", "openvino")
    finally:
        del sys.modules[name]


def _array_type(port: Any) -> type[np.generic]:
    kind = port.get_element_type().to_string()
    if kind not in TYPES:
        raise ModelError(f"the model's input {port.get_any_name()} is of {kind}; expected one of {', '.join(TYPES)}.")
    return TYPES[kind]


def _instructions(compiled: Any) -> str | None:
    """Return `Intel AVX10.1 and Intel AMX …`; None for versions that do not report it."""
    if "RUNTIME_REQUIREMENTS" not in compiled.get_property("SUPPORTED_PROPERTIES"):
        return None
    facts = dict(part.partition("=")[::2] for part in compiled.get_property("RUNTIME_REQUIREMENTS").split(";"))
    return facts.get("isa")


def _json_value(value: Any) -> str | int | bool:
    """Return a setting as a JSON value: enums print as `PerformanceMode.LATENCY`, types as `<Type: 'float32'>`."""
    if isinstance(value, (bool, int)):
        return value
    return str(value).rpartition(".")[2].removeprefix("<Type: '").removesuffix("'>")
