"""Graphs of models with random weights: of any sizes, cut from one export of each depth."""

from collections import Counter

import numpy as np
import onnx
import pytest

from compress.model_folder.model_info import ShapeInfo
from compress.prune import random_models
from compress.prune.measure_latency import open_variant, random_inputs
from compress.prune.random_models import RandomModels, export_random_model, resize_graph, unique_sizes
from compress.runtime.predictor import ONE_THREAD

HEAD_SIZE = 8


def model_shape(family, layers=2):
    return ShapeInfo(
        family=family,
        hidden=32,
        heads=(4,) * layers,
        ffn=(64,) * layers,
        vocabulary=64,
        parameters=1,
        embedding_parameters=1,
        head_size=HEAD_SIZE,
        embedding_size=16 if family == "electra" else None,
    )


def weights(proto):
    return Counter(
        tuple(tensor.dims) for tensor in proto.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "distilbert", "electra"])
def test_is_the_graph_of_a_model_of_that_size(family):
    shape, wanted = model_shape(family), (3, 48)
    exported = unique_sizes(4, 64, HEAD_SIZE, [32, 16, 1000, 24])
    resized = resize_graph(
        export_random_model(shape, exported, HEAD_SIZE, 24, shape.layers), exported, wanted, HEAD_SIZE
    )
    real = export_random_model(shape, wanted, HEAD_SIZE, 24, shape.layers)
    assert weights(resized) == weights(real)
    assert [node.op_type for node in resized.graph.node] == [node.op_type for node in real.graph.node]
    inputs = random_inputs(2, 24, 1000)
    for variant in ("onnx-fp32", "onnx-int8"):
        outputs = open_variant(resized, variant, ONE_THREAD).predict(inputs)
        assert outputs["last_hidden_state"].shape == (2, 24, 32)
        assert np.isfinite(outputs["last_hidden_state"]).all()


@pytest.mark.slow
def test_export_is_unchanged_by_resizing():
    exported = unique_sizes(4, 64, HEAD_SIZE, [32, 16, 1000, 24])
    proto = export_random_model(model_shape("bert", layers=1), exported, HEAD_SIZE, 24, 1)
    before = proto.SerializeToString()
    resize_graph(proto, exported, (1, 16), HEAD_SIZE)
    assert proto.SerializeToString() == before


@pytest.mark.parametrize(("heads", "ffn", "size"), [(12, 1536, 32), (4, 64, 8), (1, 16, 64), (16, 4096, 64)])
def test_unique_sizes_occur_nowhere_else(heads, ffn, size):
    others = [heads * size, ffn, 1000, 24, 2]
    more, width = unique_sizes(heads, ffn, size, others)
    sizes = [*(product * each for each in (more, more * size) for product in (1, 2, 3)), width]
    assert more >= heads
    assert width >= ffn
    assert len(set(sizes)) == len(sizes)
    assert not set(sizes) & {*others, size, 2 * size, 3 * size}


@pytest.mark.slow
def test_a_depth_is_exported_once(monkeypatch):
    exported = []

    def export(*args):
        exported.append(args[-1])
        return export_random_model(*args)

    monkeypatch.setattr(random_models, "export_random_model", export)
    models = RandomModels(model_shape("bert"), 24)
    graphs = [models.graph(layers, sizes) for layers in (1, 2) for sizes in ((1, 16), models.most)]
    assert exported == [1, 2]
    assert models.most == (4, 64)
    for graph, layers, heads, ffn in zip(graphs, (1, 1, 2, 2), (1, 4, 1, 4), (16, 64, 16, 64), strict=True):
        assert weights(graph) == weights(export_random_model(model_shape("bert"), (heads, ffn), HEAD_SIZE, 24, layers))
