import json

import numpy as np

from compress.measure.workload import calls_in_turn, fixed_arrays, make_calls, spaced, vocabulary_of


def test_calls_stand_for_the_lengths_of_all_rows():
    texts = ["x" * length for length in range(1, 1001)]
    calls = make_calls(texts, batch=1, seed=0)
    lengths = [len(call[0]) for call in calls]
    assert len(calls) == 64
    assert lengths == sorted(lengths)
    assert abs(np.median(lengths) - 500) < 20


def test_every_row_is_in_some_call_while_they_fit():
    texts = [str(number) for number in range(40)]
    calls = make_calls(texts, batch=4, seed=3)
    assert sorted(text for call in calls for text in call) == sorted(texts)
    assert make_calls(texts, 4, seed=3) == calls
    assert make_calls(texts, 4, seed=4) != calls


def test_rows_repeat_where_a_batch_wants_more():
    (call,) = make_calls(["a", "b", "c"], batch=8, seed=0)
    assert len(call) == 8
    assert set(call) == {"a", "b", "c"}


def test_pairs_are_as_long_as_both_texts():
    calls = make_calls([("a", "bbb"), ("aa", "b")], batch=1, seed=0)
    assert calls == [(("aa", "b"),), (("a", "bbb"),)]


def test_a_turn_fits_the_slowest_but_keeps_the_spread():
    assert calls_in_turn(64, slowest_call=0.01, seconds=0.25) == 25
    assert calls_in_turn(64, slowest_call=1.0, seconds=0.25) == 8
    assert calls_in_turn(64, slowest_call=1e-4, seconds=0.25) == 64
    assert calls_in_turn(1, slowest_call=1.0, seconds=0.25) == 1


def test_spaced_indices_are_centred():
    assert spaced(4, 64) == [8, 24, 40, 56]
    assert spaced(3, 3) == [0, 1, 2]
    assert spaced(0, 0) == []


def test_fixed_inputs_fit_the_vocabulary(tmp_path, small):
    arrays = fixed_arrays(small, batch=3, length=50, seed=0)
    assert arrays["input_ids"].shape == (3, 50)
    assert arrays["input_ids"].max() < vocabulary_of(small)
    assert arrays["attention_mask"].all()
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 77}))
    assert vocabulary_of(tmp_path) == 77
    assert vocabulary_of(tmp_path / "model.onnx") == 77
    assert vocabulary_of(tmp_path / "elsewhere" / "model.onnx") is None
