import pytest

from compress.measure.timing.schedule import (
    BUDGET_ROUNDS,
    DEFAULT_PROCESSES,
    LAP_CALLS,
    LOAD_LAPS,
    MAX_LAP_SECONDS,
    MIN_CALLS_FOR_P95,
    MIN_TURN_SECONDS,
    budget_too_small,
    generations_lived,
    lap_seconds,
    load_test_seconds,
    planned_rounds,
    rounds_that_fit,
    turn_orders,
    turn_seconds,
)


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
    assert budget_too_small(10.0, jobs=4, started=2, elapsed=12.3, more=1.2) == reason
    assert budget_too_small(2.5, 1, 1, 1.0, 9.0).endswith("at least 10 s, 1 s of them for starting")
    assert budget_too_small(0.1, 1, 0, 0.2, 0.0).endswith("for 1 model: it was used up before the first had started")


def test_load_test_time_is_planned():
    assert load_test_seconds([1, 4], {"a": 0.01, "b": 0.02}, seconds=0.5) == pytest.approx(2 * (4 * 0.5 + 5 * 0.03))
    assert load_test_seconds([4], {"slow": 0.3}, seconds=0.5) == pytest.approx(LOAD_LAPS * (LAP_CALLS * 0.3 + 4 * 0.3))
    assert load_test_seconds([], {"a": 0.1}, seconds=0.5) == 0.0
