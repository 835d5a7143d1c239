import json

import numpy as np
import pytest

from compress.measure.timing.timing_inputs import (
    SMALL_VOCABULARY,
    calls_in_turn,
    evenly_spaced,
    fixed_arrays,
    make_calls,
    shared_vocabulary,
    vocabulary_of,
)


def test_calls_represent_the_lengths_of_all_rows():
    texts = ["x" * length for length in range(1, 1001)]
    calls = make_calls(texts, batch=1, seed=0)
    lengths = [len(call[0]) for call in calls]
    assert len(calls) == 64
    assert lengths == sorted(lengths)
    assert abs(np.median(lengths) - 500) < 20


def test_every_row_is_in_a_call_while_they_fit():
    texts = [str(number) for number in range(40)]
    calls = make_calls(texts, batch=4, seed=3)
    assert sorted(text for call in calls for text in call) == sorted(texts)
    assert make_calls(texts, 4, seed=3) == calls
    assert make_calls(texts, 4, seed=4) != calls


def test_rows_repeat_to_fill_a_batch():
    (call,) = make_calls(["a", "b", "c"], batch=8, seed=0)
    assert len(call) == 8
    assert set(call) == {"a", "b", "c"}


def test_pairs_are_as_long_as_both_texts():
    calls = make_calls([("a", "bbb"), ("aa", "b")], batch=1, seed=0)
    assert calls == [(("aa", "b"),), (("a", "bbb"),)]


def test_turn_fits_the_slowest_model_with_a_minimum_of_calls():
    assert calls_in_turn(64, slowest_call=0.01, seconds=0.25) == 25
    assert calls_in_turn(64, slowest_call=1.0, seconds=0.25) == 8
    assert calls_in_turn(64, slowest_call=1e-4, seconds=0.25) == 64
    assert calls_in_turn(1, slowest_call=1.0, seconds=0.25) == 1


def test_spaced_indices_are_centred():
    assert evenly_spaced(4, 64) == [8, 24, 40, 56]
    assert evenly_spaced(3, 3) == [0, 1, 2]
    assert evenly_spaced(0, 0) == []


def test_fixed_inputs_fit_the_vocabulary(tmp_path, small):
    arrays = fixed_arrays(small, batch=3, length=50, seed=0)
    assert arrays["input_ids"].shape == (3, 50)
    assert arrays["input_ids"].max() < vocabulary_of(small)
    assert arrays["attention_mask"].all()
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 77}))
    assert vocabulary_of(tmp_path) == 77
    assert vocabulary_of(tmp_path / "model.onnx") == 77
    assert vocabulary_of(tmp_path / "elsewhere" / "model.onnx") is None


def test_all_jobs_of_a_session_get_the_same_inputs(tmp_path, small):
    for name, config in {"large": {"vocab_size": 30_000}, "medium": {"vocab_size": 77}, "silent": {}}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    (tmp_path / "large" / "model.onnx").touch()
    models = [tmp_path / "large" / "model.onnx", tmp_path / "medium", tmp_path / "gone"]
    shared = shared_vocabulary(models)
    assert shared == 77
    fed = [fixed_arrays(model, 2, 50, 0, shared)["input_ids"] for model in models]
    assert all((pieces == fed[0]).all() for pieces in fed)
    assert 8 < fed[0].max() < 77
    assert shared_vocabulary([tmp_path / "gone"]) is None
    assert shared_vocabulary([*models, tmp_path / "silent"]) == SMALL_VOCABULARY  # no row fails on pieces it has not
    assert fixed_arrays(tmp_path / "silent", 2, 50, 0)["input_ids"].max() < 8


@pytest.mark.parametrize("content", ["{", "[]", '{"vocab_size": "many"}', '{"vocab_size": -1}'])
def test_unreadable_config_has_no_vocabulary(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    assert vocabulary_of(tmp_path) is None
