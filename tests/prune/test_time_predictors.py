"""Comparing two models' times, with a clock of the test's own."""

import numpy as np
import pytest

from compress.measure.timing.latency import CallTimes
from compress.prune import time_predictors
from compress.prune.time_predictors import MIN_ROUNDS, compare_times


class Fake:
    def __init__(self, milliseconds):
        self.milliseconds = milliseconds

    def predict(self, arrays):
        return self.milliseconds


@pytest.fixture
def clock(monkeypatch):
    """Each round the machine is slower; some calls follow an interruption, and one waits for a core."""
    rounds = iter(range(1, 1000))

    def passes(run, calls, seconds):
        slow = 1 + 0.01 * next(rounds)
        total = [run(0) * slow * disturbed for disturbed in (1, 1, 1, 1, 5)]
        return CallTimes(total=(*total, 30.0), waits=(0, 0, 0, 0, 0, 25.0))

    monkeypatch.setattr(time_predictors, "time_passes", passes)


def test_ratio_holds_on_a_machine_that_slows_down(clock):
    first, ratio = compare_times(Fake(2.0), Fake(1.0), {"input_ids": np.zeros(1)}, seconds=0.0)
    assert ratio == pytest.approx(0.5, rel=0.02)
    assert 2.0 < first < 2.0 * (1 + 0.02 * MIN_ROUNDS)
