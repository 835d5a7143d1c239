"""ExecuTorch: .pte programs on the CPU by XNNPACK. It takes torch's tensors, so torch is imported; transformers is not.

A program reads one row of any length up to a fixed one, so a batch runs row by row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakSet

from numpy.typing import NDArray

from compress.environment import require, versions
from compress.environment.libraries import silent_native_code
from compress.errors import DeviceUnavailable, ModelError
from compress.model_folder.model_info import VariantInfo
from compress.runtime.model_formats import ModelFile
from compress.runtime.predictor import NO_MODEL, Placement, describe_predictor, load_failure, run_failure, run_rows
from compress.tasks.base import Arrays

INPUTS, OUTPUTS = "inputs", "outputs"
"""Methods of a program that return the names of what `forward` takes and returns, with commas between."""

IDENTIFIER = re.compile(rb"....ET\d\d", re.DOTALL)
"""The first bytes of every program. ExecuTorch ends the process where others stand there that are no text."""

SHORTEST = 3
"""Tokens of the shortest row, to which shorter ones are padded: torch.export takes a size of 1 for a constant, and
MobileBERT reads the neighbours of all tokens but one."""

EXECUTORCH_ERRORS = (RuntimeError, ValueError, IndexError, MemoryError)
"""Errors that ExecuTorch raises, and ours where a foreign program takes no arrays of two axes."""

TURN = Lock()
"""Programs take turns: they share one pool of threads, and each writes to one memory."""

OPENED: WeakSet[ExecutorchPredictor] = WeakSet()
"""Predictors in use. Their programs hold the pool of threads, so that it can be replaced only where there are none."""


class ExecutorchPredictor:
    """A loaded program behind the Predictor interface."""

    def __init__(self, model_file: ModelFile, placement: Placement, variant: VariantInfo) -> None:
        self._placement = placement
        self._variant = variant
        _require_program(model_file.file)
        with TURN, silent_native_code():
            library = load_executorch()
            _use_threads(library, placement.threads)
            try:
                self._program = library._load_program(
                    str(model_file.file), program_verification=library.Verification.InternalConsistency
                )
                methods = [self._program.get_method_name(index) for index in range(self._program.num_methods())]
                self._forward = self._program.load_method("forward")
                self._longest = int(self._forward.method_meta().input_tensor_meta(0).sizes()[-1])
                names = [self._program.load_method(name).call(())[0] for name in (INPUTS, OUTPUTS) if name in methods]
            except EXECUTORCH_ERRORS as error:
                raise load_failure("ExecuTorch", model_file.file, error) from error
            if len(names) != 2:
                raise ModelError(
                    f"{model_file.file} does not name what it takes and returns, as `compress export` does."
                )
            self.inputs, self._outputs = (tuple(each.split(",")) for each in names)
            OPENED.add(self)

    def predict(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run one padded batch, row by row."""
        with TURN:
            return run_rows(self.inputs, arrays, self._padded_length, self._run)

    def describe(self) -> dict[str, Any]:
        """Describe the configuration."""
        version = versions(["executorch"])["executorch"]
        return describe_predictor(
            self._variant, self._placement, version=version, options={"longest": self._longest}, uses="XNNPACK"
        )

    def _padded_length(self, tokens: int) -> int:
        if tokens > self._longest:
            raise ModelError(f"a row has {tokens} tokens; this file reads up to {self._longest}.")
        return max(SHORTEST, tokens)

    def _run(self, row: Arrays) -> Arrays:
        import torch

        try:
            values = self._forward.call([torch.from_numpy(row[name]).long() for name in self.inputs])
        except EXECUTORCH_ERRORS as error:
            raise run_failure("ExecuTorch", self._variant.name, row, error) from error
        return {name: value.numpy() for name, value in zip(self._outputs, values, strict=True)}


def open_executorch(model_file: ModelFile, variant: VariantInfo, placement: Placement) -> ExecutorchPredictor:
    """Open an exported folder, or a bare .pte file that names its inputs and outputs."""
    return ExecutorchPredictor(model_file, placement, variant)


def load_executorch() -> Any:
    """Import the compiled part of ExecuTorch's runtime, which links to torch.

    `executorch.runtime` imports the exporter too, with torchao, which takes longer than torch itself.
    """
    require("torch", "executorch")
    return require("executorch.extension.pybindings._C", "executorch")


def _require_program(file: Path) -> None:
    with file.open("rb") as stream:
        if not IDENTIFIER.match(stream.read(8)):
            raise ModelError(f"ExecuTorch cannot read {file}: {NO_MODEL}")


def _use_threads(library: Any, threads: int) -> None:
    """Set the process's number of threads, or refuse where other programs in use have another one."""
    current = library._threadpool_get_thread_count()
    if current == threads:
        return
    if OPENED:
        raise DeviceUnavailable(
            f"ExecuTorch has one number of threads for a process: programs in use have {current}, "
            f"and {threads} are requested.",
            hint="open it in another process",
        )
    library._unsafe_reset_threadpool(threads)
