"""The candidates of a search: what they take and weigh by estimate, which fit a budget, which are trained on."""

import pytest

from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import part_shape, parts_of
from compress.prune.latency_table import LatencyTable
from compress.recipe.schema import Budget
from compress.recipe.student_schema import Part
from compress.search.candidates import Candidate, choose_finalists, estimate, front, may_fit

SHAPE = ShapeInfo(
    family="bert",
    hidden=32,
    heads=(4,) * 3,
    ffn=(64,) * 3,
    vocabulary=100,
    parameters=0,
    embedding_parameters=3200,
    head_size=8,
)
TABLE = LatencyTable(
    variant="onnx-int8",
    processor="a CPU",
    threads=1,
    batch=1,
    length=16,
    family="bert",
    hidden=32,
    head_size=8,
    layers=3,
    fixed=0.9,
    attention={1: 0.0, 4: 0.3},
    ffn={16: 0.0, 64: 0.2},
    layer=0.2,
)


def candidate(milliseconds, score, **changes):
    return Candidate(part=Part(layers=1, heads=1, ffn=8), milliseconds=milliseconds, bytes=1000, score=score, **changes)


def test_time_is_that_of_the_table_and_layers_that_are_left_out_take_none():
    largest = estimate(TABLE, SHAPE, Part(layers=3, heads=4, ffn=64), 0)
    assert largest.milliseconds == pytest.approx(0.9 + 3 * 0.5)
    assert estimate(TABLE, SHAPE, Part(layers=1, heads=1, ffn=16), 0).milliseconds == pytest.approx(0.9 - 2 * 0.2)


def test_size_is_that_of_the_smallest_file_with_its_tokenizer():
    part = Part(layers=2, heads=2, ffn=16)
    shape = part_shape(SHAPE, part)
    bits = 4.5 * shape.embedding_parameters + 8.5 * (shape.parameters - shape.embedding_parameters)
    assert estimate(TABLE, SHAPE, part, 500).bytes == round(bits / 8 + 500)
    whole = TABLE.model_copy(update={"variant": "onnx-fp32"})
    assert estimate(whole, SHAPE, part, 500).bytes == 4 * shape.parameters + 500


@pytest.mark.parametrize(
    ("budget", "fits"),
    [
        ({"p50": "0.5ms"}, True),
        ({"p50": "0.45ms"}, True),  # an estimate may be 15 % off
        ({"p50": "0.4ms"}, False),
        ({"p95": "0.3ms"}, False),
        ({"size": 1000}, True),
        ({"smaller": 10.0}, True),
        ({"smaller": 30.0}, False),
        ({"speedup": 1000.0}, True),  # known only once the teacher is timed
        ({"p50": "0.1ms", "target": "cpu"}, False),
        ({"p50": "0.1ms", "target": "server"}, True),
    ],
)
def test_what_may_fit(budget, fits):
    assert may_fit(candidate(0.5, 0.9), [Budget(**budget)], "cpu", teacher=20_000) is fits


def test_the_front_has_what_is_faster_or_better():
    rows = [candidate(1.0, 0.8), candidate(2.0, 0.8), candidate(3.0, 0.9), candidate(0.5, 0.7), candidate(4.0, 0.85)]
    assert [each.milliseconds for each in front(rows)] == [0.5, 1.0, 3.0]


def test_finalists_are_spread_over_the_front_with_both_ends():
    rows = [candidate(2.0**number, 0.5 + number / 100) for number in range(20)]
    chosen = choose_finalists(rows, 5)
    assert [each.milliseconds for each in chosen] == [1.0, 32.0, 512.0, 16384.0, 524288.0]
    assert choose_finalists(rows[:3], 5) == rows[:3]
    assert choose_finalists(rows, 1) == rows[-1:]


def test_a_short_front_is_filled_from_the_front_of_the_others():
    rows = [candidate(1.0, 0.9), candidate(2.0, 0.8), candidate(3.0, 0.85), candidate(4.0, 0.7)]
    assert [each.milliseconds for each in choose_finalists(rows, 3)] == [1.0, 2.0, 3.0]
    assert choose_finalists(rows, 9) == rows


def test_only_what_may_fit_is_chosen():
    rows = [candidate(1.0, 0.7), candidate(2.0, 0.9, within=False)]
    assert choose_finalists(rows, 5) == rows[:1]
    assert choose_finalists(rows[1:], 5) == []


def test_every_part_has_one_name():
    names = [part.name for part in parts_of(SHAPE)]
    assert len(set(names)) == len(names)
