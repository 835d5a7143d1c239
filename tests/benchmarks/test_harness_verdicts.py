"""When a check passes, with invented numbers."""

import pytest

from benchmarks.harness import verdicts
from benchmarks.harness.harness_results import Turn


def turns(*ratios):
    return [Turn(ours=ratio * 10.0, theirs=10.0) for ratio in ratios]


def test_medians_within_five_percent_pass(row):
    result = verdicts.compare_with_tool(row, turns(1.0, 1.049, 1.2), planned=3)
    assert result.passed is True
    assert result.reason is None
    assert "+4.9%" in result.result
    assert "from +0.0% to +20.0%" in result.result


@pytest.mark.parametrize("ratio", [0.94, 1.06])
def test_medians_apart_fail_on_both_sides(row, ratio):
    assert verdicts.compare_with_tool(row, turns(1.0, ratio, ratio), planned=3).passed is False


def test_too_few_turns_decide_nothing(row):
    result = verdicts.compare_with_tool(row, turns(1.0, 1.0), planned=6)
    assert result.passed is None
    assert result.verdict == "2 of 6 turns"


def test_no_turn_leaves_the_row_as_it_was(row):
    assert verdicts.compare_with_tool(row, [], planned=6) == row


def test_one_turn_may_lie_far_off(row):
    """A disturbed turn does not decide: the median of the turns does."""
    assert verdicts.compare_with_tool(row, turns(1.0, 1.01, 1.02, 3.0, 0.99), planned=5).passed is True


@pytest.mark.parametrize(
    ("share", "planned", "least"),
    [
        (verdicts.TRUSTED, 20, 19),
        (verdicts.TRUSTED, 2, 2),
        (verdicts.TRUSTED, 40, 38),
        (verdicts.DISTINGUISHED, 10, 9),
        (verdicts.DISTINGUISHED, 1, 1),
    ],
)
def test_needed_is_rounded_up(share, planned, least):
    assert verdicts.needed(share, planned) == least


def test_twins_may_miss_once_in_twenty(row, session):
    sessions = [session(1.0)] * 19 + [session(1.05)]
    result = verdicts.twins(row, sessions, 20)
    assert result.passed is True
    assert result.result.startswith("19 of 20 hold 1.00")


def test_twins_that_miss_twice_fail(row, session):
    assert verdicts.twins(row, [session(1.0)] * 18 + [session(0.9)] * 2, 20).passed is False


def test_a_failed_session_counts_as_a_miss(row, session):
    result = verdicts.twins(row, [session(1.0)] * 18 + [session(None)] * 2, 20)
    assert result.passed is False


def test_twins_are_decided_early_only_when_nothing_can_change_it(row, session):
    assert verdicts.twins(row, [session(1.0)] * 18, 20).passed is None
    assert verdicts.twins(row, [session(1.0)] * 18, 20).reason == "18 of 20 sessions"
    assert verdicts.twins(row, [session(1.0)] * 19, 20).passed is True
    assert verdicts.twins(row, [session(0.9)] * 2, 20).passed is False


def test_twins_without_any_ratio_say_so(row, session):
    assert "no ratio in any" in verdicts.twins(row, [session(None)] * 2, 2).result


def test_slowed_twin_needs_a_ratio_above_one(row, session):
    assert verdicts.slowed(row, [session(1.03)] * 9 + [session(1.0)], 10).passed is True
    assert verdicts.slowed(row, [session(1.03)] * 8 + [session(1.0)] * 2, 10).passed is False
    assert verdicts.slowed(row, [session(0.97)] * 10, 10).passed is False  # excludes 1, but for the wrong reason


def test_warnings_are_counted(row, session):
    sessions = [session(1.0, unstable=True), session(1.0)]
    assert verdicts.twins(row, sessions, 2).result.endswith("1 marked unstable")


CALM = {"fp32": 10.0, "int8": 4.0}
SLOW = {"fp32": 20.0, "int8": 8.0}


def judge(row, quiet, busy, planned=3, **how):
    return verdicts.neighbour(row, quiet, busy, planned, **{"must_notice": True, **how})


@pytest.fixture
def quiet(session):
    return [session(2.5, p50=CALM)] * 3


@pytest.mark.parametrize("must_notice", [True, False])
def test_a_neighbour_that_slows_all_alike_and_is_noticed_passes(row, session, quiet, must_notice):
    busy = [session(2.55, p50=SLOW, unstable=True, other_load=0.5)] * 3
    result = judge(row, quiet, busy, must_notice=must_notice)
    assert result.passed is True
    assert "moved by +2.0%" in result.result
    assert "+100% slower" in result.result
    assert "50% of the cores" in result.result
    assert "noticed in 3 of 3" in result.result


def test_a_neighbour_that_changes_the_ratio_fails_where_the_ratio_decides(row, session, quiet):
    busy = [session(2.7, p50=SLOW, unstable=True)] * 3
    assert judge(row, quiet, busy).passed is False
    result = judge(row, quiet, busy, ratio_decides=False)
    assert result.passed is True
    assert "moved by +8.0%" in result.result


@pytest.mark.parametrize("how", [{"must_notice": True}, {"must_notice": False}, {"ratio_decides": False}])
def test_a_neighbour_that_slows_unnoticed_fails(row, session, quiet, how):
    busy = [session(2.5, p50=SLOW, unstable=True)] * 2 + [session(2.5, p50=SLOW)]
    assert judge(row, quiet, busy, **how).passed is False


def test_a_neighbour_must_be_noticed_though_it_slows_nothing(row, session, quiet):
    result = judge(row, quiet, quiet, must_notice=True)
    assert result.passed is False
    assert "noticed in 0 of 3 affected sessions" in result.result


def test_a_neighbour_that_was_kept_away_need_not_be_noticed(row, quiet):
    result = judge(row, quiet, quiet, must_notice=False)
    assert result.passed is True
    assert "avoided in all of 3 sessions" in result.result


def test_a_harness_that_always_warns_has_noticed_nothing(row, session):
    warned = [session(2.5, p50=CALM, unstable=True)] * 2 + [session(2.5, p50=CALM)]
    busy = [session(2.5, p50=SLOW, unstable=True)] * 3
    result = judge(row, warned, busy)
    assert result.passed is False
    assert "2 of 3 quiet ones marked unstable" in result.result
    assert judge(row, [*warned[1:], warned[2]], busy).passed is True


def test_a_busy_session_without_figures_fails(row, session, quiet):
    busy = [session(2.5, p50=CALM, unstable=True)] * 2 + [session(None, reasons=("fp32: the process ended",))]
    assert judge(row, quiet, busy).passed is False


def test_a_neighbour_is_judged_when_all_sessions_are_there(row, quiet):
    result = judge(row, quiet[:1], quiet[:1])
    assert result.passed is None
    assert result.reason == "1 of 3 sessions"


def test_missing_figures_give_a_reason(row, session):
    failed = session(None, reasons=("fp32: the process ended",))
    assert judge(row, [failed], [failed]).reason == "fp32: the process ended"
