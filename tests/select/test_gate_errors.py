"""Choosing the winner among many candidates: the gate errs no more often than with few, by simulation."""

import pytest

from benchmarks.gate_errors import simulate

SEARCHES = 150


@pytest.mark.parametrize("strict", [False, True])
def test_the_gate_errs_no_more_often_among_many_candidates(strict: bool) -> None:
    few, many = (simulate(count, 1000, SEARCHES, strict=strict) for count in (10, 40))
    chance = 2.6 * (0.5 / SEARCHES) ** 0.5  # of the difference of two shares, at a probability of 1 %
    assert many["any at the limit passed"] <= few["any at the limit passed"] + chance
    assert many["winner lost more"] <= few["winner lost more"] + chance


def test_with_strict_a_candidate_at_the_limit_passes_as_rarely_as_promised() -> None:
    alone = simulate(1, 2000, 400, strict=True)
    assert alone["any at the limit passed"] <= 0.025 + 2.6 * (0.025 / 400) ** 0.5


def test_more_rows_make_the_winner_honest() -> None:
    few, many = (simulate(10, rows, SEARCHES, strict=False)["winner lost more"] for rows in (300, 5000))
    assert many < few
    assert many <= 0.1


@pytest.mark.parametrize("rows", [100, 200, 400, 1000])
@pytest.mark.parametrize(("strict", "promised"), [(False, 0.16), (True, 0.025)])
def test_where_nothing_is_gained_few_lost_rows_pass_as_rarely_as_promised(rows: int, strict: bool, promised: float):
    alone = simulate(1, rows, 400, strict=strict, gained=0.0)
    assert alone["any at the limit passed"] <= promised + 2.6 * (promised / 400) ** 0.5
