"""OpenVINO: its own files, and ONNX files as they are, on the CPU; without torch."""

import sys
from collections import deque
from collections.abc import Callable, Mapping
from math import isnan
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.environment import require
from compress.errors import ModelError, nearest
from compress.model_folder.model_info import VariantInfo
from compress.runtime.model_formats import ModelFile
from compress.runtime.predictor import Placement, answers, cast_inputs, describe_predictor, load_failure, run_failure
from compress.tasks.base import Arrays

HINTS = {"fp32": "f32", "int8": "f32", "unknown": "f32", "bf16": "bf16", "fp16": "f32"}
"""The precision of everything that is not INT8. It is always set: by default OpenVINO computes fp32 models in bf16 on
processors that have it, which is faster and not what was requested. A file of fp16 has weights of 16 bits and computes
in fp32, so that every CPU gives the same outputs."""

OPENVINO_ERRORS = (RuntimeError, ValueError, MemoryError)
"""Errors that OpenVINO raises."""


class OpenvinoPredictor:
    """A compiled OpenVINO model; each caller takes a request of its own."""

    def __init__(
        self,
        compile_model: Callable[[], tuple[Any, list[str]]],
        placement: Placement,
        variant: VariantInfo,
        version: str,
    ) -> None:
        self._compile = compile_model
        self._compiled, names = compile_model()
        self._broken = False
        self._compiling = Lock()
        self._placement = placement
        self._variant = variant
        self._version = version
        self._types = {port.get_any_name(): port.get_element_type().to_dtype() for port in self._compiled.inputs}
        self._outputs = {names.index(name): name for name in answers(names)}
        self._idle: deque[Any] = deque()
        self.inputs = tuple(self._types)

    def predict(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run one padded batch; arrays are cast to the types the model takes."""
        feed = cast_inputs(self._types, arrays)
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
        request.infer(feed, share_inputs=True, share_outputs=True)
        outputs = self._outputs_of(request)
        if any(not output.size or isnan(output.flat[0]) for output in outputs):
            request.start_async(feed, share_inputs=True)
            request.wait()
            outputs = self._outputs_of(request)
        # Copies: the request writes its next results to the same memory.
        return {
            name: np.array(output, np.float32) for name, output in zip(self._outputs.values(), outputs, strict=True)
        }

    def _outputs_of(self, request: Any) -> list[NDArray[Any]]:
        return [request.get_output_tensor(index).data for index in self._outputs]

    def describe(self) -> dict[str, Any]:
        """Describe the configuration."""
        options = settings(self._variant, self._placement)
        return describe_predictor(self._variant, self._placement, version=self._version, options=options)

    def _request(self) -> tuple[Any, deque[Any]]:
        """Return an idle request and the queue to return it to.

        After a failure the model is compiled again: its parts remember the failed shapes, and may refuse good ones.
        """
        with self._compiling:
            if self._broken:
                (self._compiled, _), self._idle, self._broken = self._compile(), deque(), False
            compiled, idle = self._compiled, self._idle
        try:
            return idle.pop(), idle
        except IndexError:
            return compiled.create_infer_request(), idle


def open_openvino(model_file: ModelFile, variant: VariantInfo, placement: Placement) -> OpenvinoPredictor:
    """Open an exported folder, or a bare .xml or .onnx file."""
    if variant.session:
        raise ModelError(f"openvino has no session settings; {model_file.path} sets {', '.join(variant.session)}.")
    openvino = load_openvino()
    chosen = settings(variant, placement)

    def compile_model() -> tuple[Any, list[str]]:
        """The compiled model and its outputs as its file names them: compiled, one may bear names of others too."""
        core = openvino.Core()
        try:
            model = core.read_model(str(model_file.file))
            return core.compile_model(model, "CPU", chosen), [port.get_any_name() for port in model.outputs]
        except OPENVINO_ERRORS as error:
            raise load_failure("OpenVINO", model_file.file, error) from error

    return OpenvinoPredictor(compile_model, placement, variant, openvino.__version__.partition("-")[0])


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
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # how Python spells "not importable"
    return require("openvino", "openvino")
