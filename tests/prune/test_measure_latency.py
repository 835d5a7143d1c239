"""Measuring a latency table of tiny models; no assertion depends on how fast they are."""

from collections import Counter

import numpy as np
import onnx
import pytest

from compress.measure.timing.latency import CallTimes
from compress.model_folder.model_info import ShapeInfo
from compress.prune import measure_latency as module
from compress.prune.measure_latency import (
    MIN_ROUNDS,
    _export_random_model,
    _grid,
    _parts,
    compare_times,
    measure_latency,
    open_variant,
    random_inputs,
    resize_graph,
    unique_sizes,
)
from compress.runtime.predictor import ONE_THREAD
from tests.prune.test_latency_table import shape


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["onnx-fp32", "onnx-int8"])
def test_table_describes_the_model_before_pruning(monkeypatch, variant):
    monkeypatch.setattr(module, "SECONDS", 0.0)
    monkeypatch.setattr(module, "POINTS", 3)
    monkeypatch.setattr("compress.prune.measure_latency.TURN_SECONDS", 0.0)
    table = measure_latency(shape(heads=(4, 3), ffn=(64, 40)), variant, ONE_THREAD, 2, 12)
    assert (table.variant, table.batch, table.length, table.layers) == (variant, 2, 12, 2)
    assert table.mismatch(shape(heads=(4, 3), ffn=(64, 40))) is None
    assert (min(table.attention), max(table.attention)) == (1, 4)
    assert (min(table.ffn), max(table.ffn)) == (16, 64)
    assert table.attention[1] == table.ffn[16] == 0.0
    assert table.fixed > 0
    assert table.layer is not None
    assert measure_latency(shape(heads=(4,), ffn=(64,)), variant, ONE_THREAD, 2, 12).layer is None


@pytest.mark.slow
def test_the_table_of_positions_may_be_as_long_as_heads_are_many(monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.0)
    monkeypatch.setattr(module, "POINTS", 2)
    monkeypatch.setattr("compress.prune.measure_latency.TURN_SECONDS", 0.0)
    assert 10 + module.SPARE_POSITIONS == 3 * 6  # six heads would be exported, since 10 is twice five
    assert measure_latency(shape(heads=(4,), ffn=(64,)), "onnx-fp32", ONE_THREAD, 1, 10).length == 10


@pytest.mark.slow
def test_the_product_of_factorised_word_vectors_is_timed_too(monkeypatch):
    opened = []

    def note(proto, *_):
        opened.append(proto)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "open_variant", note)
    for family, size in (("bert", 8), ("bert", None), ("electra", 16), ("electra", None)):
        with pytest.raises(KeyboardInterrupt):
            measure_latency(shape(family=family, embedding_size=size), "onnx-fp32", ONE_THREAD, 1, 12)
    widths = [{tensor.dims[-1] for tensor in each.graph.initializer if tensor.dims[:1] == [1000]} for each in opened]
    assert widths == [{8}, {32}, {16}, {32}]


def test_parts_add_up_to_the_largest_and_the_smallest_model():
    times = {(4, 64): 10.0, (1, 64): 6.0, (4, 16): 5.0, (4, 32): 7.0, (1, 16): 2.0}
    parts = _parts(times, 1.5, layers=2)
    assert parts["layer"] == 0.5
    assert parts["fixed"] == 2.0
    assert parts["fixed"] + 2 * (parts["attention"][4] + parts["ffn"][64]) == pytest.approx(10.0)
    assert parts["ffn"][32] / parts["ffn"][64] == pytest.approx(2 / 5)


def test_a_size_that_gains_nothing_costs_nothing():
    parts = _parts({(2, 16): 1.0, (1, 16): 1.1}, 1.2, layers=2)
    assert parts == {"fixed": 1.1, "attention": {1: 0.0, 2: 0.0}, "ffn": {16: 0.0}, "layer": 0.0}


def test_grid_has_multiples_of_the_block_and_the_least_of_both():
    grid = _grid((12, 1536), 16)
    assert (1, 16) in grid
    assert (12, 1536) not in grid
    assert all(width % 16 == 0 for _, width in grid)
    assert len(grid) == len(set(grid)) == 17
    assert (3, 40) not in _grid((3, 40), 16)
    assert {ffn for _, ffn in _grid((3, 40), 16)} == {16, 32, 40}


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
        _export_random_model(shape, exported, HEAD_SIZE, 24, shape.layers), exported, wanted, HEAD_SIZE
    )
    real = _export_random_model(shape, wanted, HEAD_SIZE, 24, shape.layers)
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
    proto = _export_random_model(model_shape("bert", layers=1), exported, HEAD_SIZE, 24, 1)
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


class Fake:
    def __init__(self, milliseconds):
        self.milliseconds = milliseconds

    def predict(self, arrays):
        return self.milliseconds


@pytest.fixture
def clock(monkeypatch):
    """Each round the machine is slower; some calls follow an interruption, and one waits for a core."""
    rounds = iter(range(1, 1000))

    def passes(run, calls, seconds):
        slow = 1 + 0.01 * next(rounds)
        total = [run(0) * slow * disturbed for disturbed in (1, 1, 1, 1, 5)]
        return CallTimes(total=(*total, 30.0), waits=(0, 0, 0, 0, 0, 25.0))

    monkeypatch.setattr(module, "time_passes", passes)


def test_ratio_holds_on_a_machine_that_slows_down(clock):
    first, ratio = compare_times(Fake(2.0), Fake(1.0), {"input_ids": np.zeros(1)}, seconds=0.0)
    assert ratio == pytest.approx(0.5, rel=0.02)
    assert 2.0 < first < 2.0 * (1 + 0.02 * MIN_ROUNDS)
