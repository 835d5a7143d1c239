import numpy as np
import pytest
from pydantic import ValidationError

from compress.measure.quality.significance import NORMAL, SESSION_SPREAD
from compress.measure.result_base import Score
from compress.measure.timing.latency import CallTimes, Latency, Timing, ratio
from compress.measure.timing.round_statistics import spread, throughput, timing


def rounds(scale: float, count: int = 10, calls: int = 20) -> list[np.ndarray]:
    """Rounds on a machine that grows slower, with some jitter."""
    random = np.random.default_rng(0)
    return [scale * (1 + 0.2 * lap) * random.uniform(0.99, 1.01, calls) for lap in range(count)]


def measured(scale: float, **sizes: int) -> Latency:
    return Latency(status="measured", model=timing(rounds(scale, **sizes), count=200))


def test_quantile_intervals_resample_full_rounds():
    result = timing(rounds(1.0), count=200)
    assert result.calls == 200
    assert result.p50.low < result.p50.value < result.p50.high
    # calls within a round are alike here: were they resampled one by one, the interval would be far narrower
    assert result.p50.high - result.p50.low > 0.3
    assert result.p95 is not None
    assert result.p99 is not None
    assert result.p50.value < result.p95.value <= result.p99.value
    assert len(result.round_medians) == 10


def test_quantiles_need_enough_calls():
    result = timing([np.ones(3), np.ones(3), np.ones(3)], count=100)
    assert result.p95 is None
    assert result.p99 is None
    assert timing([np.ones(10)] * 3, count=100).p95 is not None


def test_a_ratio_holds_while_the_machine_drifts():
    result = ratio(measured(4.0), measured(1.0))
    assert result is not None
    assert result.value == pytest.approx(4.0, rel=0.02)
    assert result.high - result.low < 4.0 * 0.07  # mostly what is assumed of a single process


def test_ratio_intervals_include_session_spread():
    each = [1.0] * 10
    alike = Timing(
        p50=Score(value=1.0, low=1.0, high=1.0),
        p95=None,
        p99=None,
        spread=0.0,
        calls=10,
        round_medians=each,
        processes=range(10),
    )
    result = ratio(Latency(status="measured", model=alike), Latency(status="measured", model=alike))
    assert result is not None
    assert result.value == 1.0
    assert result.high == pytest.approx(np.exp(NORMAL * SESSION_SPREAD))


def test_waits_are_reported_only_where_the_system_counts_them():
    whole = [np.full(4, 2.0)] * 3
    assert timing(whole, count=100, waits=[np.full(4, 0.5)] * 3).undelayed_medians == pytest.approx((1.5, 1.5, 1.5))
    assert timing(whole, count=100, waits=[np.array([])] * 3).undelayed_medians == ()
    assert timing(whole, count=100).undelayed_medians == ()


def test_there_is_no_ratio_without_figures_or_across_sessions():
    lost = Latency(status="failed", reason="gone")
    assert ratio(measured(1.0), lost) is None
    assert ratio(lost, measured(1.0)) is None
    assert ratio(measured(1.0), measured(1.0, count=8)) is None


def test_throughput_counts_stalls():
    assert throughput([CallTimes(total=(1.0,) * 9), CallTimes(total=(41.0,))], batch=2) == pytest.approx(2 * 10 / 0.050)


def test_spread_is_of_the_rounds():
    assert spread(np.ones(8)) == 0.0
    assert spread(np.array([1.0, 1.0, 2.0, 2.0])) == pytest.approx(1 / 1.5)


def test_facts_are_frozen_and_never_nan():
    score = Score(value=1.0, low=0.9, high=1.1)
    with pytest.raises(ValidationError):
        score.value = 2.0
    with pytest.raises(ValidationError):
        Score(value=float("nan"), low=0.0, high=1.0)
    again = Latency.model_validate_json(measured(1.0).model_dump_json())
    assert again == measured(1.0)


CALLS = [0.1] * 6 + [2.0] * 2
"""Calls of a cascade: of eight texts it passes two on."""


def cascade_rounds(count=6):
    random = np.random.default_rng(0)
    return [np.array(CALLS * 5) * random.uniform(0.98, 1.02, 40) for _ in range(count)]


def test_a_mean_counts_each_call_by_its_weight():
    plain = timing(cascade_rounds(), width=8)
    assert plain.mean.value == pytest.approx(0.575, rel=0.03)
    assert plain.mean.low < plain.mean.value < plain.mean.high
    weights = [0.9 / 6] * 6 + [0.1 / 2] * 2
    weighted = timing(cascade_rounds(), width=8, weights=weights)
    assert weighted.mean.value == pytest.approx(0.9 * 0.1 + 0.1 * 2.0, rel=0.03)
    assert weighted.p50.value == pytest.approx(0.1, rel=0.05)
    assert weighted.p95.value == pytest.approx(2.0, rel=0.05)
    rare = timing(cascade_rounds(), width=8, weights=[0.98 / 6] * 6 + [0.02 / 2] * 2)
    assert rare.p95.value == pytest.approx(0.1, rel=0.05)


def test_a_stall_of_one_pass_moves_no_mean():
    rounds = cascade_rounds()
    rounds[0][3] = 500.0
    assert timing(rounds, width=8).mean.value == pytest.approx(timing(cascade_rounds(), width=8).mean.value, rel=0.01)


def test_where_a_mean_counts_factors_are_of_means():
    slow = timing([10.0 * np.ones(40) for _ in range(6)], width=8)
    teacher = Latency(status="measured", model=slow)
    cascade = Latency(status="measured", model=timing(cascade_rounds(), width=8), by_mean=True)
    assert cascade.typical() == cascade.model.mean
    assert teacher.typical() == teacher.model.p50
    assert ratio(teacher, cascade).value == pytest.approx(10 / 0.575, rel=0.03)
    assert ratio(teacher, cascade.model_copy(update={"by_mean": False})).value > 40  # of the smooth medians
    older = teacher.model_copy(update={"model": slow.model_copy(update={"undelayed_means": (), "mean": None})})
    assert ratio(older, cascade) is None
    assert Latency(status="not measured").typical() is None
