"""Measuring a latency table of tiny models; no assertion depends on how fast they are."""

import numpy as np
import pytest

from compress.measure.timing.latency import CallTimes
from compress.prune import measure_latency as module
from compress.prune.measure_latency import (
    MIN_ROUNDS,
    _grid,
    _parts,
    compare_times,
    measure_latency,
)
from compress.prune.random_models import SPARE_POSITIONS
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
    assert 10 + SPARE_POSITIONS == 3 * 6  # six heads would be exported, since 10 is twice five
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
