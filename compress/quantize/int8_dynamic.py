"""Dynamic INT8: weights are stored as 8-bit integers, activations are quantized as they come, batch by batch.

Nothing has to be calibrated. Matrix products run on integers; embeddings are stored as integers and scaled when they
are looked up. Since one scale serves a whole batch, a row's answer depends a little on what shares its batch.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.quant_utils import add_pre_process_metadata

from compress.console import Console
from compress.errors import ModelError
from compress.export.write_onnx_variant import finish
from compress.model_info import FolderInfo, read_info
from compress.quantize import ONNX_INT8
from compress.runtime import open_predictor
from compress.runtime.onnx_runtime import find_onnx
from compress.tasks.base import Arrays

QUANTIZED = ["MatMul", "Gemm", "Gather"]
"""Products, and embeddings: rows of INT8 under one scale a table added a tenth to the drift of MiniLM's logits and took
60 % off its file. Attention and normalization stay in fp32."""

FEWEST_KEPT = 0.5
"""Below this share of kept decisions the model is broken, not rounded."""
SUSPICIOUS = 0.97
"""Below this share a warning is due; what it costs the task is the gate's business."""


def quantize_int8_dynamic(
    source: Path, work: Path, *, sample: Sequence[Arrays] | None = None, console: Console | None = None
) -> FolderInfo:
    """Quantize an exported folder into ``work`` and compare it with its source.

    Args:
        source: a folder with an fp32 ONNX model that compress exported.
        work: an existing folder that receives the INT8 model, config, tokenizer and compress.json.
        sample: encoded batches to compare answers on, made up where none are given.
        console: where the outcome is told.

    Raises:
        ModelError: the source is no fp32 ONNX folder, or the result is broken (not a number, most decisions changed).
    """
    console = console or Console("quiet")
    base, file = read_info(source), find_onnx(source)
    if file is None or base.variant is None or base.variant.precision != "fp32":
        held = base.variant.name if base.variant else "a model folder"
        raise ModelError(f"{source} holds {held}; INT8 is made from an fp32 ONNX export.", hint="compress export first")
    original = onnx.load(file)
    variant = ONNX_INT8.model_copy(update={"session": {"guard_overflow": False} if shares_weights(original) else {}})
    proto = quantize_int8_dynamic_model(original)
    info, parity = finish(proto, source, work, base, variant, open_predictor(source), sample)
    if not np.isfinite(parity.largest):
        raise ModelError(f"the INT8 model made from {source} gives outputs that are not numbers.")
    if parity.agreement is not None and parity.agreement < FEWEST_KEPT:
        raise ModelError(f"the INT8 model made from {source} keeps only {parity.agreement:.0%} of the decisions.")
    tell = console.warn if parity.agreement is not None and parity.agreement < SUSPICIOUS else console.note
    tell(f"onnx-int8: {parity}; a row alone or in a batch differs by up to {parity.alone:.2g}")
    return info


def quantize_int8_dynamic_model(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The INT8 graph of an fp32 one, which is left as it was; a product's weights get one scale a column.

    Weights take all 8 bits, against whose overflow on old processors the runtime has a guard. The guard cannot take
    weights that several products share (ALBERT): those models get 7 bits, which cannot overflow.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.value_info[:]  # shapes noted by the exporter trip the quantizer's own inference
    add_pre_process_metadata(copy)  # else the quantizer advises, through the root logger, what was decided against
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
    """Whether several products use one table of weights."""
    weights = {table.name for table in proto.graph.initializer if len(table.dims) == 2}
    products = (node for node in proto.graph.node if node.op_type in ("MatMul", "Gemm"))
    uses = Counter(name for node in products for name in node.input if name in weights)
    return any(count > 1 for count in uses.values())
