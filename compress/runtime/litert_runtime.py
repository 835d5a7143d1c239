"""LiteRT: .tflite files on the CPU, without torch. Shapes are fixed: a row runs in the shortest length that holds it.

A file has one signature for each length, over the same weights, and each reads one row: a batch runs row by row.
"""

from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.environment import require, versions
from compress.environment.libraries import silent_native_code
from compress.errors import ModelError
from compress.model_folder.model_info import VariantInfo
from compress.runtime.model_formats import ModelFile
from compress.runtime.predictor import Placement, cast_inputs, describe_predictor, load_failure, run_failure, run_rows
from compress.tasks.base import Arrays

LITERT_ERRORS = (RuntimeError, ValueError, MemoryError)
"""Errors that LiteRT raises."""


class LitertPredictor:
    """An interpreter behind the Predictor interface; callers take turns, because it writes to one memory."""

    def __init__(self, model_file: ModelFile, placement: Placement, variant: VariantInfo) -> None:
        library = load_litert()
        self._placement = placement
        self._variant = variant
        self._turn = Lock()
        try:
            with silent_native_code():
                interpreter = library.Interpreter(str(model_file.file), num_threads=placement.threads)
                runners = [interpreter.get_signature_runner(name) for name in interpreter.get_signature_list()]
                inputs = [runner.get_input_details() for runner in runners]
        except LITERT_ERRORS as error:
            raise load_failure("LiteRT", model_file.file, error) from error
        if not inputs or any(len(each["shape"]) != 2 for details in inputs for each in details.values()):
            raise ModelError(f"{model_file.file} has no signatures that take arrays of (rows, tokens).")
        self._types = {name: details["dtype"] for name, details in inputs[0].items()}
        lengths = [int(next(iter(details.values()))["shape"][-1]) for details in inputs]
        self._runners = dict(sorted(zip(lengths, runners, strict=True), key=lambda pair: pair[0]))
        self.inputs = tuple(self._types)
        with silent_native_code():  # the first run prepares the weights, and writes to stderr that it does
            self.predict({name: np.ones((1, 1), np.int32) for name in self.inputs})

    def predict(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run one padded batch, row by row."""
        with self._turn:
            return run_rows(self.inputs, arrays, self._padded_length, self._run)

    def describe(self) -> dict[str, Any]:
        """Describe the configuration."""
        version = versions(["ai-edge-litert"])["ai-edge-litert"]
        options = {"lengths": list(self._runners)}
        return describe_predictor(self._variant, self._placement, version=version, options=options, uses="XNNPACK")

    def _padded_length(self, tokens: int) -> int:
        for length in self._runners:
            if tokens <= length:
                return length
        lengths = ", ".join(map(str, self._runners))
        raise ModelError(f"a row has {tokens} tokens; this file has the lengths {lengths}.")

    def _run(self, row: Arrays) -> Arrays:
        runner = self._runners[next(iter(row.values())).shape[-1]]
        try:
            outputs: Arrays = runner(**cast_inputs(self._types, row))
        except LITERT_ERRORS as error:
            raise run_failure("LiteRT", self._variant.name, row, error) from error
        return outputs


def open_litert(model_file: ModelFile, variant: VariantInfo, placement: Placement) -> LitertPredictor:
    """Open an exported folder, or a bare .tflite file with signatures."""
    return LitertPredictor(model_file, placement, variant)


def load_litert() -> Any:
    """Import LiteRT's interpreter."""
    return require("ai_edge_litert.interpreter", "litert-runtime")
