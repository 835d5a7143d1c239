"""Dynamic INT8 with word vectors of 4 bits: the smallest file, of whose vectors only those that are read are unpacked.

ONNX Runtime's GatherBlockQuantized reads them; each block of a vector has a scale of its own.
"""

from collections.abc import Collection

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from compress.export.build_context import BuildContext
from compress.model_folder.model_info import FolderInfo
from compress.quantize.dynamic import quantize_int8_dynamic_model
from compress.quantize.integer_products import weight_tables
from compress.quantize.quantize_export import quantize_export

BLOCK = 32
"""Values that share a scale of 16 bits, which adds half a bit to each of them."""
BITS = 4
LOWEST, HIGHEST = -8, 7
DOMAIN = "com.microsoft"
LEAST_ROWS = 1000
"""Smaller tables (token types, positions) stay in INT8: little can be gained."""


def quantize_embeddings_4bit(context: BuildContext) -> FolderInfo:
    """Quantize an exported folder and compare its outputs with its source's."""
    return quantize_export(context, quantize_embeddings_4bit_model)


def quantize_embeddings_4bit_model(proto: onnx.ModelProto, fp32_products: Collection[str] = ()) -> onnx.ModelProto:
    """Return the graph of an fp32 one, which is left unchanged, with INT8 products and word vectors of 4 bits."""
    tables = weight_tables(proto.graph)
    large = {name for name, table in tables.items() if len(table.dims) == 2 and _can_be_packed(*table.dims)}
    lookups = [node.name for node in proto.graph.node if node.op_type == "Gather" and node.input[0] in large]
    quantized = quantize_int8_dynamic_model(proto, (*fp32_products, *lookups))
    for name in dict.fromkeys(node.input[0] for node in quantized.graph.node if node.name in lookups):
        table = weight_tables(quantized.graph)[name]
        integers, scales = four_bits(numpy_helper.to_array(table))
        table.CopyFrom(numpy_helper.from_array(packed(integers), name))
        quantized.graph.initializer.append(numpy_helper.from_array(scales, f"{name}_scale"))
    nodes = [each for node in quantized.graph.node for each in (_unpacking(node) if node.name in lookups else [node])]
    del quantized.graph.node[:]
    quantized.graph.node.extend(nodes)
    if all(opset.domain != DOMAIN for opset in quantized.opset_import):
        quantized.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return quantized


def four_bits(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Return vectors (rows, width) as integers from -8 to 7 and the scale of each block (rows, width / BLOCK)."""
    rows, width = vectors.shape
    blocks = np.pad(vectors, ((0, 0), (0, -width % BLOCK))).reshape(rows, -1, BLOCK)
    scales = np.maximum(blocks.max(axis=-1) / HIGHEST, blocks.min(axis=-1) / LOWEST).astype(np.float16)
    divisors = np.where(scales > 0, scales, 1).astype(np.float32)[..., None]
    integers = np.clip(np.rint(blocks / divisors), LOWEST, HIGHEST).astype(np.int8)
    return integers.reshape(rows, -1)[:, :width], scales


def packed(integers: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Return integers from -8 to 7 (rows, width) in pairs, the first in the lower half of a byte (rows, width / 2).

    They are stored from 0 to 15, with 8 for zero. ONNX's own type for 4 bits, INT4, takes as much, but the ORT format
    does not have it.
    """
    positive = (integers - LOWEST).astype(np.uint8)
    pairs: NDArray[np.uint8] = np.bitwise_or(positive[:, 0::2], np.left_shift(positive[:, 1::2], BITS), dtype=np.uint8)
    return pairs


def _can_be_packed(rows: int, width: int) -> bool:
    return rows >= LEAST_ROWS and width % 2 == 0


def _unpacking(lookup: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return the nodes that read the vectors of a table of 4 bits as fp32."""
    table, indices = lookup.input
    vectors = f"{lookup.output[0]}_fp16"
    return [
        helper.make_node(
            "GatherBlockQuantized",
            [table, indices, f"{table}_scale"],
            [vectors],
            lookup.name,
            domain=DOMAIN,
            gather_axis=0,
            quantize_axis=1,
            block_size=BLOCK,
            bits=BITS,
        ),
        helper.make_node("Cast", [vectors], [lookup.output[0]], f"{lookup.name}_fp32", to=onnx.TensorProto.FLOAT),
    ]
