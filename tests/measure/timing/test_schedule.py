import json

import numpy as np
import pytest

from compress.measure.timing.round_statistics import timing
from compress.measure.timing.schedule import (
    BUDGET_ROUNDS,
    DEFAULT_PROCESSES,
    LAP_CALLS,
    LOAD_LAPS,
    MAX_LAP_SECONDS,
    MIN_CALLS_FOR_P95,
    MIN_TURN_SECONDS,
    SMALL_VOCABULARY,
    budget_too_small,
    calls_in_turn,
    evenly_spaced,
    fixed_arrays,
    generations_lived,
    lap_seconds,
    load_test_seconds,
    make_calls,
    planned_rounds,
    rounds_that_fit,
    shared_vocabulary,
    turn_orders,
    turn_seconds,
    vocabulary_of,
)
from compress.model_folder.cascade_info import CASCADE_FILE, FIRST, THEN


def test_slow_starts_live_longer_in_powers_of_two():
    assert [generations_lived(seconds) for seconds in (0.3, 2.0, 2.1, 4.0, 7.0, 30.0)] == [1, 1, 2, 2, 4, 16]


def test_rounds_are_spread_over_generations():
    assert planned_rounds(30, 10, 0.5, wanted=0.5) == planned_rounds(None, None, 0.5, wanted=0.5) == [3] * 10
    assert planned_rounds(10, 4, 0.5, wanted=0.5) == [3, 3, 2, 2]
    assert planned_rounds(3, 10, 0.5, wanted=0.5) == [1, 1, 1]
    assert planned_rounds(5, 1, 0.5, wanted=0.5) == [5]


def test_every_second_round_is_reversed():
    drawn = turn_orders(["c", "a", "b"], seed=0)
    rounds = [next(drawn) for _ in range(6)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert all(back == there[::-1] for there, back in zip(rounds[::2], rounds[1::2], strict=True))
    again = turn_orders(["a", "b", "c"], seed=0)
    assert [next(again) for _ in range(6)] == rounds
    assert len({tuple(one) for one in rounds}) > 2


def test_slow_models_get_fewer_rounds_but_one_per_process():
    assert sum(planned_rounds(30, 10, expected=1.0, wanted=0.5)) == 15
    assert planned_rounds(30, 10, expected=100.0, wanted=0.5) == [1] * 10
    assert planned_rounds(3, 10, expected=100.0, wanted=0.5) == [1, 1, 1]
    assert planned_rounds(4, 1, expected=100.0, wanted=0.5) == [3]


def test_budget_sets_the_turn_length():
    turns = DEFAULT_PROCESSES * BUDGET_ROUNDS * 2
    assert turn_seconds(left=9.0 + turns * 0.2, restart=1.0, jobs=2, longest=0.25) == pytest.approx(0.2)
    assert turn_seconds(left=1000.0, restart=1.0, jobs=2, longest=0.25) == 0.25
    assert turn_seconds(left=1.0, restart=1.0, jobs=2, longest=0.25) == MIN_TURN_SECONDS


def test_rounds_that_fit_into_a_generation():
    assert rounds_that_fit(left=10.0, restart=1.0, round_seconds=1.0) == BUDGET_ROUNDS
    assert rounds_that_fit(left=3.5, restart=1.0, round_seconds=1.0) == 2
    assert rounds_that_fit(left=1.5, restart=1.0, round_seconds=1.0) == 0
    assert rounds_that_fit(left=-3.0, restart=1.0, round_seconds=1.0) == 0


def test_laps_are_long_enough_for_a_p95_within_a_limit():
    assert LOAD_LAPS * LAP_CALLS >= MIN_CALLS_FOR_P95
    assert lap_seconds(0.25, 0.001) == 0.25
    assert lap_seconds(0.25, 0.5) == LAP_CALLS * 0.5
    assert lap_seconds(0.25, 60.0) == MAX_LAP_SECONDS
    assert lap_seconds(30.0, 60.0) == 30.0


def test_too_small_budget_names_the_least_that_would_do():
    least = "it takes at least 26 s, 25 s of them for starting"
    reason = f"the budget of 10 s for timing is too small for 4 models; {least}"
    assert budget_too_small(10.0, 10.0, jobs=4, starting=24.6, more=1.2) == reason
    assert budget_too_small(2.5, 2.5, 1, 1.0, 9.0).endswith("at least 10 s, 1 s of them for starting")
    assert budget_too_small(0.1, 0.1, 1, None, 0.0).endswith("for 1 model: it was used up before the first had started")
    assert budget_too_small(5.0, 20.0, 1, 1.0, 9.0).startswith("the budget of 5 s, its share of 20 s, for timing is")


def test_load_test_time_is_planned():
    assert load_test_seconds([1, 4], {"a": 0.01, "b": 0.02}, seconds=0.5) == pytest.approx(2 * (4 * 0.5 + 5 * 0.03))
    assert load_test_seconds([4], {"slow": 0.3}, seconds=0.5) == pytest.approx(LOAD_LAPS * (LAP_CALLS * 0.3 + 4 * 0.3))
    assert load_test_seconds([], {"a": 0.1}, seconds=0.5) == 0.0


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
    assert calls_in_turn(64, slowest_call=0.0104, seconds=0.25) == 23
    assert calls_in_turn(64, slowest_call=1.0, seconds=0.25) == 9
    assert calls_in_turn(64, slowest_call=1e-4, seconds=0.25) == 64
    assert calls_in_turn(1, slowest_call=1.0, seconds=0.25) == 1
    assert calls_in_turn(4, slowest_call=1.0, seconds=0.25) == 4


def test_a_few_disturbed_calls_do_not_move_the_median_of_a_turn_of_few_lengths():
    random, count = np.random.default_rng(0), calls_in_turn(64, slowest_call=1.0, seconds=0.25)
    lengths = np.tile(np.linspace(0.5, 1.5, count), 30)
    quiet = [lengths * random.uniform(1.0, 1.02, len(lengths)) for _ in range(10)]
    disturbed = [times * np.where(random.random(len(times)) < 0.03, 1.3, 1.0) for times in quiet]
    medians = [timing(rounds, 100, width=count).p50.value for rounds in (quiet, disturbed)]
    assert medians[1] == pytest.approx(medians[0], rel=0.01)


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


def test_a_cascade_has_the_pieces_of_its_models(tmp_path):
    for part, size in ((FIRST, 300), (THEN, 200)):
        (tmp_path / "both" / part).mkdir(parents=True)
        (tmp_path / "both" / part / "config.json").write_text(json.dumps({"vocab_size": size}))
    (tmp_path / "both" / CASCADE_FILE).touch()
    assert shared_vocabulary([tmp_path / "both"]) == 200


@pytest.mark.parametrize("content", ["{", "[]", '{"vocab_size": "many"}', '{"vocab_size": -1}'])
def test_unreadable_config_has_no_vocabulary(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    assert vocabulary_of(tmp_path) is None
