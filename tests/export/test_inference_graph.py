"""The graph made for inference: its operators, and that it computes what the model does."""

import functools

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from compress.export.builders.onnx import export_onnx_from_model
from compress.export.inference_graph import inference_modules, make_reshapes_constant
from compress.families import FAMILIES
from compress.models.encoder_parts import layers_of, part
from compress.prune.surgery import remove_units

SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES if name != "bert"]
OWN_MODULES = ("mobilebert", "modernbert")
"""Families whose projections are not replaced."""
SHAPE_ARITHMETIC = {"Concat", "ConstantOfShape", "Expand", "GatherND", "Range", "Squeeze", "Where"}


@pytest.fixture(scope="module")
def exported(tiny_model):
    """Makes a model whose layers differ in heads and width, where its family can be pruned, and its graph."""

    @functools.cache
    def export(family, **changes):
        model = tiny_model(family, **changes)
        if FAMILIES[family].prunable:
            model = remove_units(model, [[0, 2], [1]], [list(range(48)), list(range(16, 32))])
        return model, export_onnx_from_model(model)

    return export


def outputs_of(model, proto):
    """What the model and its graph answer to rows with padding, one of them nothing but padding."""
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    mask = (np.arange(9) < np.array([9, 4, 0])[:, None]).astype(np.int64)
    ids = np.random.default_rng(0).integers(5, 12, mask.shape) * mask
    arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": mask * (ids % 2)}
    feed = {given.name: arrays[given.name] for given in session.get_inputs()}
    model.set_attn_implementation("eager")  # the others do not define what attends to padding alone
    with torch.no_grad():
        expected = model(**{name: torch.from_numpy(values) for name, values in feed.items()})
    # An embedding is followed by the states of its tokens, which the model does not return.
    return [value.numpy() for value in expected.values()], session.run(None, feed)[: len(expected)]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", *SLOW])
def test_it_computes_what_the_model_does(family, exported):
    for expected, got in zip(*outputs_of(*exported(family)), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["ForTokenClassification", "ForQuestionAnswering", "ForSentenceEmbedding", "Model"])
def test_every_head_computes_what_the_model_does(head, exported):
    for expected, got in zip(*outputs_of(*exported("bert", head=head)), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", *(each for each in SLOW if each.values[0] not in OWN_MODULES)])
def test_a_layer_has_one_projection_and_no_operator_computes_shapes(family, exported):
    graph = exported(family)[1].graph
    kinds = [node.op_type for node in graph.node]
    # The projection, the scores, their product with the values, the attention's output, and two of the FFN.
    assert kinds.count("MatMul") == 2 * 6 + FAMILIES[family].own_embedding_size
    assert kinds.count("Sub") == kinds.count("Unsqueeze") == 1
    assert SHAPE_ARITHMETIC.isdisjoint(kinds)
    assert kinds.count("Shape") <= 1  # the length, up to which positions are read
    assert {node.domain for node in graph.node} == {""}
    tables = {table.name for table in graph.initializer}
    assert all(node.input[1] in tables for node in graph.node if node.op_type == "Reshape")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_gets_its_modules_back(family, tiny_model):
    model = tiny_model(family)
    before, attention, drawn = dict(model.named_modules()), model.config._attn_implementation, torch.get_rng_state()
    with inference_modules(model):
        if family not in OWN_MODULES:
            query = part(layers_of(model)[0], FAMILIES[family].query)
            assert query.out_features == 3 * query.in_features
    assert dict(model.named_modules()) == before
    assert model.config._attn_implementation == attention
    assert torch.equal(torch.get_rng_state(), drawn)


@pytest.mark.parametrize(
    ("axes", "target"),
    [(["rows", "length", 8], [0, 0, 8]), (["rows", 8, "length"], None), (["length", "rows", 8], None)],
)
def test_only_reshapes_that_keep_free_axes_in_place_become_constant(axes, target):
    graph = helper.make_graph(
        [
            helper.make_node("Shape", ["x"], ["free"], start=0, end=2),
            helper.make_node("Concat", ["free", "width"], ["sizes"], axis=0),
            helper.make_node("Reshape", ["x", "sizes"], ["y"], allowzero=1),
        ],
        "reshape",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "length", 2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, axes)],
        [helper.make_tensor("width", TensorProto.INT64, [1], [8])],
    )
    make_reshapes_constant(graph)
    if target is None:
        assert [node.op_type for node in graph.node] == ["Shape", "Concat", "Reshape"]
    else:
        assert [node.op_type for node in graph.node] == ["Reshape"]
        assert [onnx.numpy_helper.to_array(table).tolist() for table in graph.initializer] == [target]
