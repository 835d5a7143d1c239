"""The time of updates as a line through their work."""

import pytest

from compress.measure.timing.step_time_fit import StepTimeFit


def test_fit_is_the_line_through_the_updates():
    fit = StepTimeFit()
    for work in (1.0, 2.0, 5.0):
        fit.add(work, 0.5 + 2 * work)
    assert fit.line() == pytest.approx((0.5, 2.0))
    assert fit.forecast(10, 100.0) == pytest.approx(205.0)


def test_equal_updates_are_attributed_to_their_work():
    fit = StepTimeFit()
    for _ in range(3):
        fit.add(4.0, 2.0)
    assert fit.line() == (0.0, 0.5)
    assert StepTimeFit().line() == (0.0, 0.0)
