"""Stores the weights of a graph of QuantizeLinear and DequantizeLinear pairs (QDQ) as integers.

An exported graph holds fp32 weights, which it quantizes and dequantizes whenever it runs. Here each becomes one INT8
matrix with a scale for each column, chosen so that no CPU saturates.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compress.export.inference_graph import remove_unused
from compress.quantize.integer_products import PRODUCTS, weight_tables
from compress.quantize.saturation import unsaturated_scales

ROUNDING = ("DequantizeLinear", "Clip", "QuantizeLinear")
"""What exporters put between the weights and their product."""


def store_integer_weights(graph: onnx.GraphProto) -> None:
    """Replace the weights of all quantized products by integers (inputs, columns), in place."""
    tables = weight_tables(graph)
    made_by = {output: node for node in graph.node for output in node.output}
    dequantize: dict[str, onnx.NodeProto] = {}
    for product in graph.node:
        if product.op_type not in PRODUCTS:
            continue
        name, passed = product.input[1], []
        while name in made_by and made_by[name].op_type in (*ROUNDING, "Transpose"):
            passed.append(made_by[name].op_type)
            name = made_by[name].input[0]
        if name not in tables or "QuantizeLinear" not in passed:
            continue
        attribute = next((each for each in product.attribute if each.name == "transB" and each.i), None)
        if attribute:
            product.attribute.remove(attribute)
        if name not in dequantize:
            table = numpy_helper.to_array(tables[name])
            is_transposed = (attribute is not None) != ("Transpose" in passed)
            graph.initializer.extend(_integers(name, table.T if is_transposed else table))
            scaled = [f"{name}_quantized", f"{name}_scale"]
            dequantize[name] = helper.make_node("DequantizeLinear", scaled, [f"{name}_dequantized"], name, axis=1)
        product.input[1] = dequantize[name].output[0]
    nodes = [*dequantize.values(), *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    remove_unused(graph)


def _integers(name: str, weights: np.ndarray) -> list[onnx.TensorProto]:
    """Return weights (inputs, columns) as integers, and their scales."""
    scales = unsaturated_scales(weights)
    integers = np.rint(weights / scales).astype(np.int8)
    return [numpy_helper.from_array(integers, f"{name}_quantized"), numpy_helper.from_array(scales, f"{name}_scale")]
