"""Fake quantization in torch against what numpy and ONNX Runtime compute."""

import numpy as np
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper

from compress.quantize.qat.fake_quantization import (
    column_scales,
    fake_quantize_activations,
    fake_quantize_vectors,
    fake_quantize_weights,
)
from compress.quantize.saturation import can_saturate, unsaturated_scales


@pytest.fixture(scope="module")
def dynamic_quantize_linear():
    """What ONNX Runtime makes of a tensor: integers, scale and zero point."""
    floats = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    names = ("y", "scale", "zero")
    kinds = (TensorProto.UINT8, TensorProto.FLOAT, TensorProto.UINT8)
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, kinds, strict=True)]
    graph = helper.make_graph([helper.make_node("DynamicQuantizeLinear", ["x"], names)], "g", [floats], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda array: session.run(None, {"x": array})


def random(*shape, seed=0, mean=0.0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) + mean


@pytest.mark.parametrize("mean", [0.0, 5.0, -5.0])
def test_activations_are_those_of_onnx_runtime_for_each_text_alone(dynamic_quantize_linear, mean):
    values = random(3, 5, 8, mean=mean)
    rounded = fake_quantize_activations(values)
    for text, result in zip(values, rounded, strict=True):
        integers, scale, zero = dynamic_quantize_linear(text[None].numpy())
        expected = (integers[0].astype(np.float32) - zero) * scale
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("inputs", [8, 7, 1])
def test_scales_of_columns_are_those_of_the_exported_model(inputs):
    weights = random(6, inputs)
    weights[2] = 0.0
    scales = unsaturated_scales(weights.T.numpy())
    np.testing.assert_allclose(column_scales(weights).numpy(), scales, rtol=1e-6)
    integers = np.rint(weights.T.numpy() / scales)
    assert not can_saturate(integers.astype(np.int8))
    np.testing.assert_allclose(fake_quantize_weights(weights).numpy(), (integers * scales).T, rtol=1e-5, atol=1e-7)


def test_looked_up_vectors_have_the_scale_of_their_table(dynamic_quantize_linear):
    table = random(20, 4)
    integers, scale, zero = dynamic_quantize_linear(table.numpy())
    expected = (integers.astype(np.float32) - zero) * scale
    np.testing.assert_allclose(fake_quantize_vectors(table[3:5], table).numpy(), expected[3:5], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("function", [fake_quantize_activations, fake_quantize_weights])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_gradients_pass_rounding(function, kind):
    values = random(4, 6).to(kind).requires_grad_()
    result = function(values)
    (result * 3).sum().backward()
    assert result.dtype == kind
    assert not torch.equal(result, values)
    torch.testing.assert_close(values.grad, torch.full_like(values, 3.0))


def test_nothing_but_zeros_stays_zero():
    zeros = torch.zeros(2, 3)
    for result in (fake_quantize_activations(zeros), fake_quantize_weights(zeros), fake_quantize_vectors(zeros, zeros)):
        assert torch.equal(result, zeros)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_stay_so(value):
    """The training loop finds the rows responsible by the losses that they make."""
    values = random(2, 6)
    values[0, 0] = value
    result = fake_quantize_activations(values)
    assert not torch.isfinite(result[0]).all()
    assert torch.isfinite(result[1]).all()
