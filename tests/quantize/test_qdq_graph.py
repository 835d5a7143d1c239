"""Graphs of two products as exporters write them, whose weights become integers."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.quantize.integer_products import can_any_saturate, integer_products
from compress.quantize.neural_compressor import store_integer_weights

GENERATOR = np.random.default_rng(0)
WEIGHTS = GENERATOR.normal(size=(4, 6)).astype(np.float32)
"""(columns, inputs), as linear layers of PyTorch store them."""


def rounded(name, result):
    """Nodes that quantize and dequantize weights by rows."""
    return [
        helper.make_node("QuantizeLinear", [name, "scales", "zeros"], [f"{result}_integers"], axis=0),
        helper.make_node("Clip", [f"{result}_integers", "least", "most"], [f"{result}_clipped"]),
        helper.make_node("DequantizeLinear", [f"{result}_clipped", "scales", "zeros"], [f"{result}_rounded"], axis=0),
    ]


def graph(last):
    """Return a graph with a quantized input and the given nodes, whose result is `y`."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["x_integers"]),
        helper.make_node("DequantizeLinear", ["x_integers", "scale", "zero"], ["x_rounded"]),
        *last,
    ]
    tables = {
        "w": WEIGHTS,
        "scales": np.abs(WEIGHTS).max(axis=1) / 127,
        "zeros": np.zeros(4, np.int8),
        "least": np.int8(-128),
        "most": np.int8(127),
        "scale": np.float32(0.02),
        "zero": np.uint8(128),
    }
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 6])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 4])]
    stored = [numpy_helper.from_array(np.asarray(table), name) for name, table in tables.items()]
    made = helper.make_graph(nodes, "products", inputs, outputs, stored)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


MATMUL = [
    *rounded("w", "a"),
    helper.make_node("Transpose", ["a_rounded"], ["a_turned"], perm=[1, 0]),
    helper.make_node("MatMul", ["x_rounded", "a_turned"], ["y"]),
]
GEMM = [*rounded("w", "a"), helper.make_node("Gemm", ["x_rounded", "a_rounded"], ["y"], transB=1)]


@pytest.mark.parametrize("nodes", [MATMUL, GEMM], ids=["MatMul", "Gemm"])
def test_weights_are_stored_by_column(nodes):
    proto = graph(nodes)
    store_integer_weights(proto.graph)
    onnx.checker.check_model(proto)
    (product,) = integer_products(proto)
    assert (product.weights.dtype, product.weights.shape) == (np.int8, (6, 4))
    assert not can_any_saturate(proto)
    assert all(table.data_type != TensorProto.FLOAT for table in proto.graph.initializer if len(table.dims) == 2)
    x = GENERATOR.uniform(-1, 1, (5, 6)).astype(np.float32)
    (y,) = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(y, x @ WEIGHTS.T, atol=0.2)


def test_shared_weights_are_stored_once():
    """ALBERT's layers use the same weights."""
    proto = graph(
        [
            *MATMUL[:-1],
            helper.make_node("MatMul", ["x_rounded", "a_turned"], ["first"]),
            *rounded("w", "b"),
            helper.make_node("Transpose", ["b_rounded"], ["b_turned"], perm=[1, 0]),
            helper.make_node("MatMul", ["x_rounded", "b_turned"], ["second"]),
            helper.make_node("Add", ["first", "second"], ["y"]),
        ]
    )
    store_integer_weights(proto.graph)
    onnx.checker.check_model(proto)
    assert len(list(integer_products(proto))) == 2
    assert [table.name for table in proto.graph.initializer if len(table.dims) == 2] == ["w_quantized"]


def test_products_in_fp32_stay():
    turned = helper.make_node("Transpose", ["w"], ["turned"], perm=[1, 0])
    proto = graph([turned, helper.make_node("MatMul", ["x_rounded", "turned"], ["y"])])
    store_integer_weights(proto.graph)
    assert [table.name for table in proto.graph.initializer if len(table.dims) == 2] == ["w"]
    assert not list(integer_products(proto))
