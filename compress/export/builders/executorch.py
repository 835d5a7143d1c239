"""Exports to ExecuTorch, PyTorch's runtime for phones and boards: products by XNNPACK, the rest by portable kernels.

The program reads one row of any length up to the task's longest: memory is planned for the largest input, so a batch of
the largest rows would cost every call its memory.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from compress.environment import require
from compress.export.build_context import BuildContext
from compress.export.conversion import converting
from compress.export.from_pytorch import (
    SAMPLE_SIZES,
    PositionalModel,
    example_inputs,
    longest_input,
    take_over,
    write_compared,
)
from compress.export.inference_graph import refuse_lstm
from compress.formats import FORMATS
from compress.model_folder.model_info import FolderInfo
from compress.models.load_save import load
from compress.runtime.executorch_runtime import INPUTS, OUTPUTS, SHORTEST


def export_executorch(context: BuildContext) -> FolderInfo:
    """Export a model folder to model.pte, and compare its outputs with PyTorch's.

    Args:
        context: of the build; its source is a model folder, or a plain Hugging Face one.

    Raises:
        ModelError: the model cannot be exported, or its outputs differ by more than rounding.
    """
    model = load(context.source)
    base = take_over(context, model)
    with converting(model, "ExecuTorch"):
        named = PositionalModel(model)
        partitioner = require("executorch.backends.xnnpack.partition.xnnpack_partitioner", "executorch")
        program = trace(named, named, longest_input(model, base))
        content = lower(program, named, [partitioner.XnnpackPartitioner()])
    (context.work / FORMATS["executorch"].files[0]).write_bytes(content)
    return write_compared(context, model, base, named.inputs)


def trace(module: torch.nn.Module, named: PositionalModel, longest: int) -> ExportedProgram:
    """Return the program of ``named``, or of a graph made of it, for one row of up to ``longest`` tokens.

    Raises:
        ModelError: the model has an LSTM.
    """
    refuse_lstm(named, "ExecuTorch")
    length = torch.export.Dim("length", min=SHORTEST, max=longest)
    shapes = tuple({1: length} for _ in named.inputs)
    by_name = {"arrays": shapes} if module is named else shapes  # a graph has no variable arguments any more
    return torch.export.export(module, example_row(named, longest), dynamic_shapes=by_name)


def example_row(named: PositionalModel, longest: int) -> tuple[torch.Tensor, ...]:
    """Return a row to trace, of at most ``longest`` tokens."""
    length = min(longest, SAMPLE_SIZES["sequence_length"])
    return tuple(example_inputs(named.model, "executorch", batch_size=1, sequence_length=length).values())


def lower(program: ExportedProgram, named: PositionalModel, partitioners: Sequence[Any]) -> bytes:
    """Return the content of a .pte file: what the partitioners take runs in XNNPACK, and the names are methods."""
    exir = require("executorch.exir", "executorch")
    names = {INPUTS: ",".join(named.inputs), OUTPUTS: ",".join(named.outputs)}
    edge = exir.to_edge_transform_and_lower(program, partitioner=list(partitioners), constant_methods=names)
    return bytes(edge.to_executorch().buffer)
