"""The matrix products of a graph: their names, 8-bit weights of quantized ones, and whether any of these saturates.

A quantized product is a MatMulInteger, or a MatMul or Gemm whose weights come from a DequantizeLinear (QDQ).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import numpy_helper

from compress.quantize.saturation import can_saturate, saturating_sums, unsaturated_scales
from compress.tasks.base import Arrays

PRODUCTS = ("MatMul", "Gemm")
MOST_BATCHES = 16
"""Batches whose sums are computed exactly."""


@dataclass(frozen=True)
class IntegerProduct:
    """A matrix product of quantized activations and constant quantized weights."""

    activations: str
    """The quantized tensor (…, inputs)."""
    weights: NDArray[Any]
    """int8 or uint8 (inputs, columns)."""

    @property
    def can_saturate(self) -> bool:
        """Whether some activations exceed 16 bits. Unsigned weights are multiplied in 32 bits everywhere."""
        return self.weights.dtype == np.int8 and can_saturate(self.weights)


def integer_products(proto: onnx.ModelProto) -> Iterator[IntegerProduct]:
    """Yield the quantized products of a graph."""
    tables = weight_tables(proto.graph)
    made_by = {output: node for node in proto.graph.node for output in node.output}
    for node in proto.graph.node:
        if node.op_type == "MatMulInteger" and node.input[1] in tables:
            yield IntegerProduct(node.input[0], numpy_helper.to_array(tables[node.input[1]]))
        elif node.op_type in PRODUCTS:
            left, right = (made_by.get(name) for name in node.input[:2])
            if left and right and left.op_type == right.op_type == "DequantizeLinear" and right.input[0] in tables:
                weights = numpy_helper.to_array(tables[right.input[0]])
                yield IntegerProduct(left.input[0], weights)


def can_any_saturate(proto: onnx.ModelProto) -> bool:
    """Whether some activations make a product exceed 16 bits on a CPU that adds pairs of products in 16 bits."""
    return any(product.can_saturate for product in integer_products(proto))


def saturates(proto: onnx.ModelProto, batches: Sequence[Arrays]) -> bool:
    """Whether a product exceeds 16 bits there for the activations of these rows; true where there are none."""
    unsafe = [product for product in integer_products(proto) if product.can_saturate]
    names = list({product.activations: None for product in unsafe})
    if not unsafe or not batches:
        return bool(unsafe)
    probe = onnx.ModelProto()
    probe.CopyFrom(proto)
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(probe.SerializeToString(), options, providers=["CPUExecutionProvider"])
    inputs = [given.name for given in session.get_inputs()]
    for batch in batches[:MOST_BATCHES]:
        values = session.run(names, {name: batch[name].astype(np.int64) for name in inputs})
        rows = {name: each.reshape(-1, each.shape[-1]) for name, each in zip(names, values, strict=True)}
        if any(saturating_sums(rows[product.activations], product.weights) for product in unsafe):
            return True
    return False


def product_names(proto: onnx.ModelProto) -> dict[str, str]:
    """Return for each product with constant weights the name of its node, and of the layer it computes.

    Exporters keep a layer's name with its bias, which is added to the product.
    """
    tables = weight_tables(proto.graph)
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in proto.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    names = {}
    for node in proto.graph.node:
        if node.op_type in PRODUCTS and node.input[1] in tables:
            added = [
                name for after in readers.get(node.output[0], ()) if after.op_type == "Add" for name in after.input
            ]
            known = [name for name in (*node.input[1:], *added) if name.endswith((".weight", ".bias"))]
            names[node.name] = known[0].rpartition(".")[0] if known else node.name
    return names


def names_for_quantizers(products: Iterable[str]) -> list[str]:
    """Return what ONNX Runtime's quantizers may call these nodes: before anything else they make a Gemm a MatMul."""
    return [name + end for name in products for end in ("", "_MatMul")]


def avoid_saturation(quantized: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Round the weights of all products again, in place, with scales with which no CPU saturates.

    Args:
        quantized: the INT8 graph as ONNX Runtime's quantizers make it, which name tables after those they come from.
        original: the graph it was made from.
    """
    before, after = weight_tables(original.graph), weight_tables(quantized.graph)
    for name in {node.input[1] for node in original.graph.node if node.op_type in PRODUCTS}:
        rounded, scale = after.get(f"{name}_quantized"), after.get(f"{name}_scale")
        if rounded is not None and scale is not None and rounded.data_type == onnx.TensorProto.INT8:
            weights = numpy_helper.to_array(before[name])
            scales = unsaturated_scales(weights)
            rounded.CopyFrom(numpy_helper.from_array(np.rint(weights / scales).astype(np.int8), rounded.name))
            scale.CopyFrom(numpy_helper.from_array(scales, scale.name))


def transpose_weights(graph: onnx.GraphProto) -> None:
    """Store the weights of every product as (inputs, columns), in place; those that several products read once."""
    tables = weight_tables(graph)
    uses = Counter(name for node in graph.node for name in node.input)
    readers: dict[str, list[tuple[onnx.NodeProto, onnx.AttributeProto]]] = {}
    for node in graph.node:
        stored = next((each for each in node.attribute if each.name == "transB" and each.i), None)
        if node.op_type == "Gemm" and stored and node.input[1] in tables:
            readers.setdefault(node.input[1], []).append((node, stored))
    for name, products in readers.items():
        if uses[name] == len(products):
            weights = np.ascontiguousarray(numpy_helper.to_array(tables[name]).T)
            tables[name].CopyFrom(numpy_helper.from_array(weights, name))
            for node, stored in products:
                node.attribute.remove(stored)


def weight_tables(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return the matrices and scales of a graph by name."""
    return {table.name: table for table in graph.initializer}
