"""PyTorch compiled by torch.compile (TorchInductor): C++ on the CPU, Triton kernels on CUDA.

Compiling is done at the first batch. On the CPU it took 10 to 30 s for a small encoder, 5 s where TorchInductor's own
cache on disk had the kernels. Batch and length stay free: one graph serves all shapes but those of one row or of one
token, for which another is compiled when they first come (torch always specializes a size of one). When
a batch of as many rows as tokens comes first, its graph holds for such batches alone: torch takes equal sizes for one.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from compress.environment import require
from compress.errors import DeviceUnavailable, ModelError
from compress.model_folder.model_info import VariantInfo
from compress.runtime.model_formats import ModelFile
from compress.runtime.predictor import Placement, first_line, is_memory, root_cause
from compress.runtime.torch_eager import TorchPredictor, load_on, tensors

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

    def __init__(self, model: PreTrainedModel, placement: Placement, variant: VariantInfo) -> None:
        import torch

        super().__init__(model, placement, variant)
        self._compiled = torch.compile(model, backend=self._compile, dynamic=True, fullgraph=True)
        self._seen: set[tuple[bool, ...]] = set()
        self._compiling = Lock()
        self.graphs = 0

    def forward(self, feed: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """One pass, compiled where no batch of its kind came before."""
        kind = _kind(next(iter(feed.values())).shape)
        if kind in self._seen:
            return tensors(self._compiled(**feed))
        import torch._dynamo

        # torch does not promise to compile in two threads at once
        with self._compiling, torch._dynamo.config.patch(COMPILING), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these warnings are about torch's own code
            try:
                outputs = tensors(self._compiled(**feed))
            except torch._dynamo.exc.TorchDynamoException as error:
                if is_memory(error):
                    raise
                reason = first_line(root_cause(error))
                raise ModelError(f"torch.compile cannot compile {self._variant.name}: {reason}") from error
        self._seen.add(kind)
        return outputs

    def counters(self) -> dict[str, int]:
        """Return the number of graphs."""
        return {"compiled_graphs": self.graphs}

    def _compile(self, graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Any:
        """Compile with Inductor and count the graphs."""
        from torch._inductor.compile_fx import compile_fx

        self.graphs += 1
        # One kernel at a time: helper processes would stay alive and slow down measurements.
        return compile_fx(graph, list(inputs), config_patches={"compile_threads": 1})


def open_compiled(model_file: ModelFile, variant: VariantInfo, placement: Placement) -> CompiledPredictor:
    """Load a model folder to be compiled at its first batch; refuse where torch lacks what it compiles with."""
    require("torch", "train")
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    if placement.device == "cuda" and importlib.util.find_spec("triton") is None:
        raise DeviceUnavailable("torch.compile needs Triton on CUDA, and it is not installed.")
    try:
        if placement.device == "cpu":
            get_cpp_compiler()
    except (InvalidCxxCompiler, OSError) as error:
        raise DeviceUnavailable(
            "torch.compile needs a C++ compiler on the CPU, and none was found.",
            hint="install g++ or clang++, or let CXX name one",
        ) from error
    return CompiledPredictor(load_on(model_file.path, variant, placement), placement, variant)


def _kind(shape: Sequence[int]) -> tuple[bool, ...]:
    """Return what torch may recompile for: sizes of one, and sizes that are equal."""
    return (*(size == 1 for size in shape), len(set(shape)) < len(shape))
