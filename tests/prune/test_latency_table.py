"""Latency tables: interpolation, and which models they describe."""

import json

import pytest

from compress.errors import ModelError
from compress.model_folder.model_info import ShapeInfo
from compress.prune.latency_table import LatencyTable, read_table, unreachable, wanted_speedup
from compress.recipe.prune_schema import PruneTo


def table(**changes):
    values = {
        "variant": "onnx-int8",
        "processor": "a processor",
        "threads": 1,
        "batch": 1,
        "length": 16,
        "family": "bert",
        "hidden": 32,
        "head_size": 8,
        "layers": 2,
        "fixed": 1.0,
        "attention": {"1": 0.0, "4": 3.0},
        "ffn": {"16": 0.0, "64": 6.0},
    }
    return LatencyTable.model_validate(values | changes)


def shape(**changes):
    values = {"family": "bert", "hidden": 32, "heads": (4, 4), "ffn": (64, 64), "vocabulary": 64, "head_size": 8}
    return ShapeInfo.model_validate(values | {"parameters": 1, "embedding_parameters": 1} | changes)


def test_times_between_sizes_are_interpolated():
    assert table().attention_times([1, 2, 4]) == [0.0, 1.0, 3.0]
    assert table().ffn_times([16, 40]) == [0.0, 3.0]
    assert table().model_time([4, 1], [64, 16]) == 1.0 + 3.0 + 6.0
    assert table().largest_speedup(shape(), 16) == 19.0


def test_a_dropped_layer_saves_what_it_takes_with_the_smallest_sizes():
    dropping = table(layer=0.6)
    assert dropping.model_time([4, 0], [64, 0]) == pytest.approx(1.0 - 0.6 + 9.0)
    assert dropping.largest_speedup(shape(), 16) == pytest.approx(19.0 / 0.4)
    assert "at least one layer stays, with one head" in unreachable(dropping, shape(), PruneTo(speedup=60.0), 16)
    assert unreachable(dropping, shape(), PruneTo(speedup=40.0), 16) is None


def test_a_goal_within_tolerance_of_the_largest_is_not_refused():
    assert unreachable(table(), shape(), PruneTo(speedup=20.0), 16) is None
    assert "at most 19.0 times faster" in unreachable(table(), shape(), PruneTo(speedup=21.0), 16)


def test_a_goal_of_time_is_a_speedup_by_the_table():
    to = PruneTo(p50="5ms")
    assert wanted_speedup(to, table(), shape()) == 3.8  # the whole model takes 19 ms
    assert unreachable(table(), shape(), to, 16) is None
    assert "0.9 ms cannot be reached" in unreachable(table(), shape(), PruneTo(p50="900us"), 16)
    assert "takes at least 1 ms" in unreachable(table(), shape(), PruneTo(p50="900us"), 16)
    reason = unreachable(table(), shape(), PruneTo(p50="20ms"), 16)
    assert reason.startswith("the model takes 19 ms before pruning by the latency table (onnx-int8, 16 word pieces)")
    assert reason.endswith("which is within 20 ms: leave out prune, or give a shorter time.")


def test_wide_blocks_limit_the_speedup():
    reason = unreachable(table(), shape(), PruneTo(speedup=2.0), 64)
    assert "one head and 64 neurons (`round_to`), so the model becomes at most 1.5 times faster" in reason
    assert table().largest_speedup(shape(ffn=(64, 32)), 128) == pytest.approx(15.0 / 9.0)
    assert table(layer=0.6).largest_speedup(shape(ffn=(64, 32)), 128) == pytest.approx(15.0 / 2.4)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"family": "roberta"}, "family"),
        ({"hidden": 48}, "hidden 32, and the model has hidden 48"),
        ({"heads": (4,), "ffn": (64,)}, "layers"),
        ({"head_size": 16}, "head size"),
        ({"heads": (4, 6)}, "number of heads is listed up to 4, and the model has 6"),
        ({"ffn": (64, 80)}, "FFN width is listed up to 64"),
    ],
)
def test_models_that_it_does_not_describe(changes, reason):
    assert table().mismatch(shape()) is None
    assert reason in table().mismatch(shape(**changes))


WHOLE = table().model_dump(mode="json")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "it is empty"),
        ("\x00", "it is not JSON: "),
        (json.dumps(WHOLE)[:60], "it is not JSON: "),
        ("[]", "the file should be an object, got []"),
        ("{}", "variant is missing"),
        (json.dumps({"schema_version": 2}), "schema_version: written by a newer version"),
        (WHOLE | {"ffn": {}}, "ffn is empty"),
        (WHOLE | {"ffn": {"16": float("nan")}}, "ffn.16 should be a finite number, got nan"),
        (WHOLE | {"ffn": {"wide": 1.0}}, "ffn.wide: the key should be a valid integer"),
        (WHOLE | {"attention": {"1": -1.0}}, "attention.1 should be greater than or equal to 0, got -1.0"),
        (WHOLE | {"threads": "two"}, "threads should be a valid integer, got 'two'"),
        (WHOLE | {"layers": 0}, "layers should be greater than or equal to 1, got 0"),
        (WHOLE | {"fixed": 0}, "fixed should be greater than 0, got 0"),
        (WHOLE | {"layer": 1.0}, "the file: `layer`, of all layers but one, is not less than `fixed`"),
    ],
)
def test_broken_file_is_one_error(tmp_path, content, reason):
    path = tmp_path / "table.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ModelError) as raised:
        read_table(path)
    assert raised.value.message.partition("as a latency table: ")[2].startswith(reason)


def test_missing_file_is_one_error(tmp_path):
    with pytest.raises(ModelError, match="cannot be read: No such file"):
        read_table(tmp_path / "table.json")


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "table.json"
    path.write_text(table().model_dump_json())
    assert read_table(path) == table()
