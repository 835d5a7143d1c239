"""PyTorch compiled by torch.compile (TorchInductor): C++ on the CPU, Triton kernels on CUDA.

Compiling is done at the first batch. On the CPU it took 10 to 30 s for a small encoder, 5 s where TorchInductor's own
cache on disk had the kernels. Batch and length stay free: one graph serves all shapes but those of one row or of one
token, for which another is compiled when they first come (torch always specializes a size of one). When
a batch of as many rows as pieces comes first, its graph holds for such batches alone: torch takes equal sizes for one.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from compress.environment import require
from compress.errors import DeviceUnavailable, ModelError
from compress.model_info import FolderInfo, VariantInfo
from compress.runtime.predictor import Placement
from compress.runtime.runtime_errors import first_line, is_memory
from compress.runtime.torch_eager import CudaPredictor, TorchPredictor, load_on, tensors

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

COMPILING = {
    # A layer norm's epsilon is a constant; as a variable it costs a second compilation.
    "specialize_float": True,
    # Torch counts the graphs of all models of a process together, since they share the code of their forward.
    "recompile_limit": 256,
}
"""Settings of TorchDynamo while something is compiled."""


class CompiledPredictor(TorchPredictor):
    """A compiled module. It runs compiled or not at all: what cannot be compiled as one graph is an error."""

    runtime = "torch-compiled"

    def __init__(
        self, model: PreTrainedModel, inputs: tuple[str, ...], placement: Placement, variant: VariantInfo
    ) -> None:
        import torch

        super().__init__(model, inputs, placement, variant)
        self._compiled = torch.compile(model, backend=self._compile, dynamic=True, fullgraph=True)
        self._seen: set[tuple[bool, ...]] = set()
        self._first_of_its_kind = Lock()
        self.graphs = 0

    def forward(self, feed: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """One pass, compiled where no batch of its kind came before."""
        kind = _kind(next(iter(feed.values())).shape)
        if kind in self._seen:
            return tensors(self._compiled(**feed))
        with self._first_of_its_kind:  # torch does not promise to compile in two threads at once
            outputs = self._first(feed)
            self._seen.add(kind)
        return outputs

    def describe(self) -> dict[str, Any]:
        """Describe the configuration."""
        facts = super().describe()
        return {**facts, "options": {**facts["options"], "dynamic": True, "compiled_graphs": self.graphs}}

    def _first(self, feed: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Compile and run."""
        import torch._dynamo

        try:
            with torch._dynamo.config.patch(COMPILING), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # these warnings are about torch's own code
                return tensors(self._compiled(**feed))
        except torch._dynamo.exc.TorchDynamoException as error:
            if is_memory(error):
                raise
            raise ModelError(
                f"torch.compile cannot compile {self._variant.name}: {first_line(_cause(error))}"
            ) from error

    def _compile(self, graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Any:
        """Compile with Inductor and count the graphs."""
        from torch._inductor.compile_fx import compile_fx

        self.graphs += 1
        # One kernel at a time: helper processes would stay alive and slow down measurements.
        return compile_fx(graph, list(inputs), config_patches={"compile_threads": 1})


class CompiledCudaPredictor(CompiledPredictor, CudaPredictor):
    """A compiled module on CUDA."""


def open_compiled(path: Path, info: FolderInfo | None, variant: VariantInfo, placement: Placement) -> CompiledPredictor:
    """Load a model folder to be compiled at its first batch."""
    require("torch", "train")
    if placement.device == "cpu":
        check_compiler()
    elif importlib.util.find_spec("triton") is None:
        raise DeviceUnavailable("torch.compile needs Triton on CUDA, and it is not installed.")
    model, inputs = load_on(path, info, variant, placement)
    return (CompiledCudaPredictor if placement.device == "cuda" else CompiledPredictor)(
        model, inputs, placement, variant
    )


def check_compiler() -> None:
    """Refuse where TorchInductor finds no C++ compiler."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, OSError) as error:
        raise DeviceUnavailable(
            "torch.compile needs a C++ compiler on the CPU, and none was found.",
            hint="install g++ or clang++, or let CXX name one",
        ) from error


def _kind(shape: Sequence[int]) -> tuple[bool, ...]:
    """Return what torch may recompile for: sizes of one, and sizes that are equal."""
    return (*(size == 1 for size in shape), len(set(shape)) < len(shape))


def _cause(error: BaseException) -> BaseException:
    """Return the original error, which torch wraps in advice to its own developers."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error
