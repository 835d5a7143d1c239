"""INT8 of ExecuTorch by its quantizer for XNNPACK: weights with a scale for each column, activations when computed.

No sample rows are needed, and a row does not depend on others. Tables of embeddings, which that quantizer leaves in
fp32, become integers with a scale for each row.
"""

import copy

import torch
from torch import Tensor, nn

from compress.environment import require
from compress.export.build_context import BuildContext
from compress.export.builders.executorch import example_row, lower, trace
from compress.export.conversion import converting
from compress.export.from_pytorch import PositionalModel, longest_input, take_over
from compress.formats import FORMATS
from compress.model_folder.model_info import FolderInfo
from compress.models.load_save import load
from compress.models.student.factorised_embeddings import FactoredEmbedding
from compress.quantize.quantize_export import write_rounded
from compress.runtime.model_formats import FP32
from compress.runtime.predictor import ONE_THREAD
from compress.runtime.torch_eager import TorchPredictor


def quantize_xnnpack(context: BuildContext) -> FolderInfo:
    """Quantize a model folder to model.pte, and compare its outputs with PyTorch's.

    Args:
        context: of the build; its source is a model folder.

    Raises:
        ModelError: the model cannot be converted, or the result is broken.
    """
    original = load(context.source)
    base, model = take_over(context, original), copy.deepcopy(original)
    longest = longest_input(model, base)
    with converting(model, "ExecuTorch"):
        quantizers = require("executorch.backends.xnnpack.quantizer.xnnpack_quantizer", "executorch")
        pt2e = require("torchao.quantization.pt2e.quantize_pt2e", "executorch")
        partitioners = require("executorch.backends.xnnpack.partition.xnnpack_partitioner", "executorch")
        _make_embeddings_integer(model)
        named = PositionalModel(model)
        dynamic = quantizers.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
        quantizer = quantizers.XNNPACKQuantizer().set_global(dynamic)
        # It would make numbers in a graph floats, which only sums and products in INT8 need, and spoil positions.
        quantizer.transform_for_annotation = lambda graph: graph
        prepared = pt2e.prepare_pt2e(trace(named, named, longest).module(), quantizer)
        prepared(*example_row(named, longest))
        program = trace(pt2e.convert_pt2e(prepared), named, longest)
        # What is quantized goes first: a partition that also holds fp32 operators would not be computed in integers.
        content = lower(
            program, named, [partitioners.XnnpackDynamicallyQuantizedPartitioner(), partitioners.XnnpackPartitioner()]
        )
    (context.work / FORMATS["executorch"].files[0]).write_bytes(content)
    return write_rounded(context, base, TorchPredictor(original, ONE_THREAD, FP32), inputs=named.inputs)


class IntegerEmbedding(nn.Module):
    """A table of embeddings in INT8, with a scale for each row."""

    integers: Tensor
    scales: Tensor

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        weight = table.weight.detach()
        scales = weight.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny) / 127
        self.register_buffer("integers", (weight / scales).round().to(torch.int8))
        self.register_buffer("scales", scales)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors of ``ids`` in the precision of the scales."""
        return self.integers[ids].to(self.scales.dtype) * self.scales[ids]


def _make_embeddings_integer(model: nn.Module) -> None:
    """Replace the tables of embeddings of a model in place."""
    tables = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Embedding)]
    for name, table in tables:
        integer = IntegerEmbedding(table)
        model.set_submodule(
            name, nn.Sequential(integer, table.widen) if isinstance(table, FactoredEmbedding) else integer
        )
