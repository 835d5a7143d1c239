"""Intervals of ratios: the arithmetic, and how often they are right in simulated sessions."""

import numpy as np
import pytest

from compress.measure.quality.significance import (
    NORMAL,
    SESSION_SPREAD,
    clustered_mean,
    coarser_grouping,
    harrell_davis_median,
    t_quantile,
    trimmed_mean,
)
from compress.measure.timing.schedule import DEFAULT_PROCESSES, DEFAULT_ROUNDS

SESSIONS = 400


def simulated(
    random: np.random.Generator, slowed: float, bias: float, burst: float, session: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the ratios of one session of two models, and the process that took each.

    Every process has a speed of its own (``bias`` is the standard deviation), every turn some noise, the machine
    drifts from turn to turn, some turns meet a burst of other work, and all processes of one of the models share
    something for as long as the session lasts (``session`` is its standard deviation).
    """
    processes, rounds = DEFAULT_PROCESSES, DEFAULT_ROUNDS // DEFAULT_PROCESSES
    turns = 2 * processes * rounds
    machine = np.cumsum(random.normal(0, 0.002, turns)) + random.normal(0, 0.008, turns)
    machine += np.where(random.random(turns) < burst, random.uniform(0.03, 0.3, turns), 0.0)
    own = random.normal(0, bias, (processes, 1, 2))
    times = machine.reshape(processes, rounds, 2)
    times[:, 1::2] = times[:, 1::2, ::-1]  # every second round goes the other way around
    times = times + own
    slowed += random.normal(0, session)
    return (times[..., 1] - times[..., 0] + np.log1p(slowed)).ravel(), np.repeat(np.arange(processes), rounds)


def targets(slowed: float, bias: float, burst: float, session: float = 0.0, known: float = 0.0) -> float:
    """The share of sessions whose interval leaves out 1, if so much is ``known`` of what a session shares."""
    random = np.random.default_rng(0)
    result = [clustered_mean(*simulated(random, slowed, bias, burst, session), processes=2) for _ in range(SESSIONS)]
    return float(np.mean([abs(middle) > np.hypot(half, NORMAL * known) for middle, half in result]))


@pytest.mark.parametrize(("bias", "burst"), [(0.0, 0.0), (0.005, 0.01), (0.01, 0.02), (0.01, 0.05), (0.02, 0.03)])
def test_equal_models_differ_significantly_in_one_session_of_twenty(bias, burst):
    assert targets(0.0, bias, burst) < 0.08


@pytest.mark.parametrize(("bias", "burst"), [(0.005, 0.01), (0.01, 0.02), (0.01, 0.05)])
def test_three_percent_is_detected_in_nine_sessions_of_ten(bias, burst):
    assert targets(0.03, bias, burst) > 0.95


@pytest.mark.parametrize("bias", [0.002, 0.005, 0.01])
def test_ratio_interval_covers_session_spread(bias):
    assert targets(0.0, bias, 0.01, SESSION_SPREAD, SESSION_SPREAD) < 0.08
    assert targets(0.0, bias, 0.01, SESSION_SPREAD) > 0.1  # as it was before
    assert targets(0.03, bias, 0.01, SESSION_SPREAD, SESSION_SPREAD) > 0.95


def test_resampling_rounds_alone_is_over_confident():
    """Why there are more processes than one: their difference is taken for the models'."""
    random = np.random.default_rng(0)
    wrong = 0
    for _ in range(SESSIONS):
        logarithms, _ = simulated(random, 0.0, 0.0, 0.02)
        logarithms += random.normal(0, 0.01 * np.sqrt(2))  # the same two processes in all rounds
        drawn = np.median(logarithms[random.integers(0, len(logarithms), (200, len(logarithms)))], axis=1)
        low, high = np.quantile(drawn, [0.025, 0.975])
        wrong += not low <= 0.0 <= high
    assert wrong / SESSIONS > 0.4


def test_few_processes_have_wide_intervals():
    values = np.zeros(10)
    assert clustered_mean(values, [])[1] == pytest.approx(1.96 * 0.01, rel=0.01)
    assert clustered_mean(values, [0] * 5 + [1] * 5, processes=2)[1] == pytest.approx(1.96 * 0.01, rel=0.01)
    assert clustered_mean(np.array([0.1]), []) == (0.1, pytest.approx(1.96 * 0.01, rel=0.01))
    assert clustered_mean(values, [0] * 3 + [1] * 3 + [2] * 4)[1] == 0.0


def test_disturbed_turn_and_process_do_not_decide():
    owners = np.repeat(np.arange(10), 3)
    values = np.tile([0.0, 0.001, -0.001], 10)
    values[4] = 0.5
    values[owners == 7] = 0.3
    middle, half = clustered_mean(values, owners)
    assert abs(middle) < 1e-9
    assert half < 0.001


def test_trimming_reduces_the_degrees_of_freedom():
    values = np.arange(10.0)
    middle, half = trimmed_mean(values, trimmed=0.1)
    assert middle == 4.5
    winsorized = np.array([1, 1, 2, 3, 4, 5, 6, 7, 8, 8.0])
    assert half == pytest.approx(t_quantile(7) * winsorized.std(ddof=1) * np.sqrt(10) / 8)
    assert trimmed_mean(values, trimmed=0.0)[1] == pytest.approx(t_quantile(9) * values.std(ddof=1) / np.sqrt(10))


def test_t_quantile_matches_scipy():
    assert t_quantile(1) == pytest.approx(12.706, abs=1e-3)
    assert t_quantile(40) == pytest.approx(2.0211, abs=1e-4)
    assert t_quantile(1000) == pytest.approx(1.9623, abs=1e-4)
    with pytest.raises(ValueError, match="one value has no spread"):
        t_quantile(0)


def test_coarser_grouping_has_fewer_clusters():
    assert coarser_grouping([0, 0, 1, 1], [0, 1, 2, 3]) == [0, 0, 1, 1]
    assert coarser_grouping((), (0, 1)) == ()


def test_median_of_calls_uses_each_calls_own_median():
    assert harrell_davis_median(np.array([3.0, 1.0, 2.0])) == 2.0
    lengths = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    passes = np.concatenate([lengths, lengths + np.array([0, 0, 100.0, 0, 0]), lengths])
    assert harrell_davis_median(passes, width=5) == pytest.approx(3.0)
    assert harrell_davis_median(np.array([*[2.0] * 7, 90.0]), width=8) < 2.5
