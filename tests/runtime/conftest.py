"""Models of one operator, written with onnx alone."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper


def make_sum(path, dtype=TensorProto.INT64, length="length"):
    """A model whose logits are the sum of the tokens that are no padding."""
    nodes = [
        helper.make_node("Mul", ["input_ids", "attention_mask"], ["real"]),
        helper.make_node("Cast", ["real"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["numbers"], ["logits"], keepdims=0),
    ]
    inputs = [helper.make_tensor_value_info(name, dtype, ["batch", length]) for name in ("input_ids", "attention_mask")]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [])
    graph = helper.make_graph(nodes, "sum", inputs, [logits])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def make_wide(path, width=512):
    """A model whose logits take `width` numbers per token."""
    table = np.ones((2, width), dtype=np.float32)
    node = helper.make_node("Gather", ["table", "input_ids"], ["logits"])
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "length", width])
    graph = helper.make_graph([node], "wide", [ids], [logits], [onnx.numpy_helper.from_array(table, "table")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


@pytest.fixture(scope="session")
def write_wide():
    """Writes a model that takes much memory for its output: ``write_wide(path)``."""
    return make_wide


@pytest.fixture(scope="session")
def write_sum():
    """Writes such a model: ``write_sum(path, dtype, length)``."""
    return make_sum


@pytest.fixture
def arrays():
    """A row of three tokens, the last of them padding."""
    ids = np.array([[5, 6, 7]])
    return {"input_ids": ids, "attention_mask": np.array([[1, 1, 0]]), "labels": np.array([0])}
