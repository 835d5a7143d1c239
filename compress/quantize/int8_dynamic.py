"""Dynamic INT8: weights are stored as 8-bit integers, activations are quantized at run time, batch by batch.

No calibration is needed. Matrix products run on integers; embeddings are stored as integers and scaled when they are
looked up. Since a batch shares one scale, a row's outputs depend a little on the other rows of its batch.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.quant_utils import add_pre_process_metadata

from compress.errors import ModelError
from compress.export.build_context import BuildContext
from compress.export.write_variant import write_variant
from compress.model_info import FolderInfo, read_info
from compress.runtime import open_predictor
from compress.runtime.onnx_runtime import ONNX_FILE, existing_onnx

QUANTIZED = ["MatMul", "Gemm", "Gather"]
"""Matrix products and embeddings: INT8 embeddings with one scale per table added a tenth to the error of MiniLM's
logits and removed 60 % of its file. Attention and normalization stay in fp32."""

LEAST_AGREEMENT = 0.5
"""Below this share of equal decisions the model is broken, not rounded."""
SUSPICIOUS = 0.97
"""Below this share a warning is shown; what it costs the task is decided by the gate."""


def quantize_int8_dynamic(context: BuildContext) -> FolderInfo:
    """Quantize an exported folder and compare its outputs with its source's.

    Args:
        context: of the build; its source is a folder with an fp32 ONNX model that compress exported.

    Raises:
        ModelError: the source is no fp32 ONNX folder, or the result is broken (not a number, most decisions changed).
    """
    source = context.source
    base, original = read_info(source), onnx.load(existing_onnx(source))
    if base.variant is None or base.variant.precision != "fp32":
        raise ModelError(f"{source} holds no fp32 ONNX export, which INT8 is made from.", hint="compress export first")
    if shares_weights(original):
        variant = context.variant.model_copy(update={"session": {"guard_overflow": False}})
        context = replace(context, variant=variant)
    proto = quantize_int8_dynamic_model(original)
    onnx.save(proto, context.work / ONNX_FILE)
    inputs = tuple(given.name for given in proto.graph.input)
    info, parity = write_variant(context, base, open_predictor(source), inputs=inputs)
    if parity.agreement is not None and parity.agreement < SUSPICIOUS:
        message = f"the INT8 model made from {source} repeats only {parity.agreement:.0%} of the decisions."
        if parity.agreement < LEAST_AGREEMENT:
            raise ModelError(message)
        context.console.warn(message)
    return info


def quantize_int8_dynamic_model(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the INT8 graph of an fp32 one, which is left unchanged; a product's weights get one scale per column.

    Weights use all 8 bits, and the runtime guards against overflow on old processors. The guard does not support
    weights that several products share (ALBERT): those models get 7 bits, which cannot overflow.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.value_info[:]  # the exporter's shapes make the quantizer's own inference fail
    add_pre_process_metadata(copy)  # else the quantizer logs advice to run it
    with tempfile.TemporaryDirectory(prefix="compress-int8-") as folder:
        target = Path(folder) / "model.onnx"
        quantize_dynamic(
            copy,
            target,
            QUANTIZED,
            per_channel=True,
            weight_type=QuantType.QInt8,
            reduce_range=shares_weights(proto),
        )
        quantized = onnx.load(target)
    del quantized.graph.value_info[:]
    del quantized.metadata_props[:]
    return quantized


def shares_weights(proto: onnx.ModelProto) -> bool:
    """Whether several products use the same weights."""
    weights = {table.name for table in proto.graph.initializer if len(table.dims) == 2}
    products = (node for node in proto.graph.node if node.op_type in ("MatMul", "Gemm"))
    uses = Counter(name for node in products for name in node.input if name in weights)
    return any(count > 1 for count in uses.values())
