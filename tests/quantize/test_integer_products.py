"""The products of a graph, and whether they saturate for given rows."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.quantize.dynamic import quantize_int8_dynamic_model
from compress.quantize.integer_products import can_any_saturate, integer_products, product_names, saturates


def model_that_saturates(largest=1.0):
    """One product whose first two weights of a column are both the largest, as ONNX Runtime's quantizer rounds them."""
    weights = np.full((4, 2), 0.1, dtype=np.float32)
    weights[:2, 0] = largest
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["input_ids"], ["x"], "cast", to=TensorProto.FLOAT),
            helper.make_node("MatMul", ["x", "weights"], ["product"], "product"),
            helper.make_node("Add", ["product", "encoder.layer.0.bias"], ["logits"], "add"),
        ],
        "graph",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["rows", 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", 2])],
        [
            numpy_helper.from_array(weights, "weights"),
            numpy_helper.from_array(np.ones(2, dtype=np.float32), "encoder.layer.0.bias"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def rounded_to_8_bits(proto):
    """The INT8 graph with one scale a column that uses all 8 bits."""
    quantized = quantize_int8_dynamic_model(proto)
    for table in quantized.graph.initializer:
        if table.name == "weights_quantized":
            table.CopyFrom(numpy_helper.from_array(np.array([[127, 127]] * 4, dtype=np.int8), table.name))
    return quantized


LARGE = [{"input_ids": np.array([[255, 255, 0, 1]])}]
SMALL = [{"input_ids": np.array([[60, 60, 0, 255]])}]


def test_a_model_made_to_saturate():
    proto = model_that_saturates()
    plain, scaled = rounded_to_8_bits(proto), quantize_int8_dynamic_model(proto)
    assert can_any_saturate(plain)
    assert saturates(plain, LARGE)
    assert not saturates(plain, SMALL)
    assert not can_any_saturate(scaled)
    assert not saturates(scaled, LARGE)


def test_products_that_share_their_input_are_all_computed():
    proto = model_that_saturates()
    proto.graph.initializer.append(numpy_helper.from_array(np.full((4, 2), 0.1, dtype=np.float32), "others"))
    proto.graph.node.append(helper.make_node("MatMul", ["x", "others"], ["second"], "second"))
    proto.graph.output.append(helper.make_tensor_value_info("second", TensorProto.FLOAT, ["rows", 2]))
    quantized = rounded_to_8_bits(proto)
    for table in quantized.graph.initializer:
        if table.name == "others_quantized":  # large where the activations of these rows are small
            table.CopyFrom(
                numpy_helper.from_array(np.array([[0, 0]] * 2 + [[127, 127]] * 2, dtype=np.int8), table.name)
            )
    assert [product.can_saturate for product in integer_products(quantized)] == [True, True]
    assert saturates(quantized, LARGE)
    assert not saturates(quantized, SMALL)


def test_without_rows_it_may_saturate():
    assert saturates(rounded_to_8_bits(model_that_saturates()), [])


def test_the_scaled_weights_compute_the_same():
    import onnxruntime

    proto = model_that_saturates()
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, LARGE[0])[0]
    scaled = quantize_int8_dynamic_model(proto)
    got = onnxruntime.InferenceSession(scaled.SerializeToString()).run(None, LARGE[0])[0]
    np.testing.assert_allclose(got, expected, rtol=0.02)


def test_products_are_named_after_their_bias():
    assert product_names(model_that_saturates()) == {"product": "encoder.layer.0"}


@pytest.mark.parametrize("transposed", [True, False])
def test_weights_are_read_as_inputs_by_columns(transposed):
    proto = model_that_saturates()
    node = proto.graph.node[1]
    if transposed:
        node.op_type = "Gemm"
        node.attribute.append(helper.make_attribute("transB", 1))
        table = proto.graph.initializer[0]
        table.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(numpy_helper.to_array(table).T), "weights"))
    onnx.checker.check_model(proto)
    (product,) = integer_products(quantize_int8_dynamic_model(proto))
    assert product.weights.shape == (4, 2)
    assert product.weights[0, 0] == product.weights[1, 0] > product.weights[2, 0]


def test_weights_that_two_products_read_are_turned_once():
    import onnxruntime

    proto = model_that_saturates()
    first = proto.graph.node[1]
    first.op_type = "Gemm"
    first.attribute.append(helper.make_attribute("transB", 1))
    table = proto.graph.initializer[0]
    table.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(numpy_helper.to_array(table).T), "weights"))
    proto.graph.node.append(helper.make_node("Gemm", ["x", "weights"], ["second"], "second", transB=1))
    proto.graph.output.append(helper.make_tensor_value_info("second", TensorProto.FLOAT, ["rows", 2]))
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, LARGE[0])
    quantized = quantize_int8_dynamic_model(proto)
    assert [product.weights.shape for product in integer_products(quantized)] == [(4, 2), (4, 2)]
    got = onnxruntime.InferenceSession(quantized.SerializeToString()).run(None, LARGE[0])
    np.testing.assert_allclose(np.stack(got), np.stack(expected), rtol=0.02)
