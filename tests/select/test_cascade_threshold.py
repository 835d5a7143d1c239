"""The thresholds of a cascade are tested from the most cautious on, until one does not pass."""

import numpy as np
import pytest

from compress.errors import ScreenedOut
from compress.select.cascade_threshold import SHARE_STEP, find_threshold, passed, thresholds
from compress.select.ledger import GateResult

SURE = np.linspace(1.0, 0.5, 400)


def judge(outcome_at):
    """Return a judge by the share that the first model answers, and the shares that it was asked about."""
    asked = []

    def decide(answered):
        asked.append(float(answered.mean()))
        outcome = outcome_at(asked[-1])
        return GateResult(outcome=outcome, drop=0.0, allowed=0.01, reasons=() if outcome == "passed" else ("lost it",))

    return decide, asked


def test_more_and_more_texts_are_answered_by_the_first_model():
    found = list(thresholds(SURE))
    assert [round(each.share, 3) for each in found] == [round(SHARE_STEP * step, 3) for step in range(1, 41)]
    assert [each.value for each in found] == sorted((each.value for each in found), reverse=True)


def test_rows_of_equal_certainty_are_answered_together():
    found = list(thresholds(np.array([1.0] * 60 + [0.6] * 40)))
    assert [(each.value, each.share) for each in found] == [(0.8, 0.6), (0.6, 1.0)]


def test_the_first_that_does_not_pass_ends_the_search():
    decide, asked = judge(lambda share: "passed" if share < 0.31 or share > 0.5 else "undecided")
    points = find_threshold(SURE, decide)
    assert passed(points).share == pytest.approx(0.3)
    assert [point.outcome for point in points] == ["passed"] * 12 + ["undecided"]
    assert max(asked) == pytest.approx(0.325)  # a later one that would pass is never asked about


def test_the_first_model_may_answer_everything():
    points = find_threshold(SURE, judge(lambda share: "passed")[0])
    assert (passed(points).share, points[-1].outcome) == (1.0, "passed")


def test_no_threshold_is_an_error_with_the_reason():
    with pytest.raises(ScreenedOut, match=r"no threshold passes: with 2\.5% of the texts .* it lost it"):
        find_threshold(SURE, judge(lambda share: "missed")[0])


def test_the_chosen_one_rarely_loses_more_than_allowed():
    """Cascades that lose exactly what is allowed at every threshold pass about as rarely as one such candidate does."""
    random, wrong, runs = np.random.default_rng(0), 0, 300
    for _ in range(runs):
        lost = random.random(400) < 0.05

        def decide(answered, lost=lost):
            drop = float((lost * answered).sum() / answered.sum())
            error = float(np.sqrt(drop * (1 - drop) / answered.sum()))
            return GateResult(outcome="passed" if drop + error <= 0.05 else "missed", drop=drop, allowed=0.05)

        try:
            point = passed(find_threshold(SURE, decide))
            wrong += point.share > 0.5  # the true loss is what is allowed at every share
        except ScreenedOut:
            continue
    assert wrong / runs < 0.2
