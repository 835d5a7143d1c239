"""The benchmark of search: what a front is worth, over time, and which budgets were met."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.report_store import Store, beginning
from benchmarks.search import __main__ as command
from benchmarks.search.__main__ import budget_lines, lines, page
from benchmarks.search.search_results import Budget, Made, SearchReport, hypervolume, over_time, volume_at
from compress.console import Console


def made(way: str, number: int, minutes: float, *points: tuple[float, float], **facts: Any) -> Made:
    return Made(set="mrpc", seed=0, way=way, number=number, title="t", minutes=minutes, points=points, **facts)


def test_the_hypervolume_is_the_area_that_the_front_rules() -> None:
    assert hypervolume([(10.0, 0.9)], 0.5) == pytest.approx(0.4)
    two = hypervolume([(100.0, 0.6), (10.0, 0.9)], 0.5)
    assert two == pytest.approx(2 * 0.1 + 1 * 0.3)
    beaten = [(9.0, 0.8), (50.0, 0.4), (0.5, 1.2)]  # slower and worse, below the floor, slower than the teacher
    assert hypervolume([(100.0, 0.6), (10.0, 0.9), *beaten], 0.5) == pytest.approx(two)
    assert hypervolume([], 0.5) == 0.0


def test_the_hypervolume_grows_with_each_run() -> None:
    steps = over_time([made("grid", 0, 2.0, (10.0, 0.9)), made("grid", 1, 3.0, (100.0, 0.6))], 0.5)
    assert steps == [(2.0, pytest.approx(0.4)), (5.0, pytest.approx(0.5))]
    assert [round(volume_at(steps, minutes), 3) for minutes in (1.0, 2.0, 4.9, 9.0)] == [0.0, 0.4, 0.4, 0.5]


def test_a_search_is_compared_after_as_long_and_in_a_third_of_it() -> None:
    runs = (
        made("search", 0, 4.0, (10.0, 0.9)),
        made("search", 1, 8.0, (100.0, 0.9)),
        made("grid", 0, 12.0, (10.0, 0.9)),
    )
    report = SearchReport(**beginning("command", trial=False), rows=100, made=runs, floors={"mrpc": 0.5})
    ours, grid = lines(report)
    assert (ours["minutes"], ours["hypervolume"], ours["search after as long"]) == ("12.0", "0.800", "")
    assert (grid["hypervolume"], grid["search after as long"], grid["in a third of it"]) == ("0.400", "0.800", "0.400")


@pytest.mark.parametrize(("measured", "met"), [(19.2, True), (18.9, False), (None, None)])
def test_a_budget_is_met_within_5_percent(measured: float | None, met: bool | None) -> None:
    facts = {"set": "mrpc", "seed": 0, "asked": "speedup=20", "winner": "static/x", "speedup": 20.0}
    budget = Budget(**facts, measured=measured, parts=6, worse=0)
    assert budget.is_met is met
    (row,) = budget_lines([budget])
    assert (row["parts"], row["worse"]) == ("6", "0")
    assert row["met within 5 %"] == {True: "yes", False: "no", None: ""}[met]


def test_the_page_says_why_a_way_did_not_run() -> None:
    failed = made("optuna", 99, 0.0, reason="optuna cannot be installed")
    report = SearchReport(**beginning("command", trial=False), rows=100, made=(failed,))
    assert "mrpc/0/optuna/99: optuna cannot be installed" in page(report)
    assert math.isclose(hypervolume([(10.0, 1.0)], 1.0), 0.0)


def test_what_another_benchmark_finds_takes_the_place_of_all_that_the_former_found():
    former = [made("grid", number, 1.0) for number in range(3)]
    report = SearchReport(**beginning("x", False), rows=9, made=(*former, made("init", 0, 1.0)))
    store = Store(report, None, command.page)
    case = SimpleNamespace(set="mrpc", seed=0, grid=lambda: [made("grid", 0, 2.0)])
    command.attempt(case, "grid", store, Console("quiet"))
    assert [(each.way, each.number, each.minutes) for each in store.report.made] == [("grid", 0, 2.0), ("init", 0, 1.0)]
