import numpy as np
import pytest

from compress.measure.quality.significance import (
    Interval,
    basic_interval,
    draw_counts,
    highest_share,
    mcnemar,
    paired_p_value,
    percentile_interval,
    resamples,
)


def bootstrap(sample: np.ndarray, count: int = 1000, seed: int = 0) -> Interval:
    """The mean with its interval."""
    means = [float(sample[drawn].mean()) for drawn in resamples(len(sample), count, seed)]
    return percentile_interval(float(sample.mean()), np.array(means))


def test_interval_covers_the_true_value_about_as_often_as_it_says():
    random = np.random.default_rng(1)
    covered = 0
    for trial in range(100):
        sample = random.random(200) < 0.8
        result = bootstrap(sample, count=200, seed=trial)
        covered += result.low <= 0.8 <= result.high
    assert 88 <= covered <= 100


def test_same_seed_gives_same_resamples():
    one, two = (np.stack(list(resamples(30, 5, seed=7))) for _ in range(2))
    assert (one == two).all()
    assert (one != np.stack(list(resamples(30, 5, seed=8)))).any()


def test_interval_narrows_with_rows_not_with_resamples():
    def width(rows: int, count: int) -> float:
        sample = np.arange(rows) % 2
        result = bootstrap(sample, count)
        return result.high - result.low

    assert width(3200, 400) < width(100, 400) / 3
    assert width(400, 3000) == pytest.approx(width(400, 300), rel=0.3)


def test_percentile_interval_ends():
    result = percentile_interval(0.5, np.linspace(0.0, 1.0, 1001))
    assert (result.low, result.high) == pytest.approx((0.025, 0.975))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # 1 against 9: 2 * (C(10,0) + C(10,1)) / 2^10
        ([1] + [0] * 9, [0] + [1] * 9, 22 / 1024),
        ([1, 1, 0], [1, 1, 0], 1.0),
        ([1, 0], [0, 1], 1.0),
    ],
)
def test_mcnemar_exact(first, second, expected):
    assert mcnemar(np.array(first, bool), np.array(second, bool)) == pytest.approx(expected)


def test_mcnemar_chi_square_agrees_with_the_exact_sum():
    from math import comb

    only_first, only_second = 480, 560
    right = np.r_[np.ones(only_first, bool), np.zeros(only_second, bool)]
    tail = sum(comb(1040, count) for count in range(only_first + 1))
    assert mcnemar(right, ~right) == pytest.approx(2 * tail / (1 << 1040), rel=0.02)


def test_paired_p_value():
    assert paired_p_value(np.zeros(99), 100) == 1.0
    assert paired_p_value(np.full(999, 0.1), 100) == pytest.approx(2 / 1000)
    assert paired_p_value(np.r_[np.full(50, -1.0), np.full(50, 1.0)], 100) == 1.0
    assert [paired_p_value(np.full(999, 0.1), rows) for rows in (1, 5)] == [1.0, 1 / 16]  # all of few rows are nothing


@pytest.mark.parametrize("together", [1, 100, 1 << 20])
def test_counts_match_the_resamples(together, monkeypatch):
    monkeypatch.setattr("compress.measure.quality.significance.BLOCK", together)
    times = np.concatenate(list(draw_counts(30, 25, seed=7)))
    slow = [[list(drawn).count(row) for row in range(30)] for drawn in resamples(30, 25, seed=7)]
    assert times.tolist() == slow


def test_basic_interval_reflects_the_bias_and_contains_the_value():
    result = basic_interval(0.10, np.linspace(0.11, 0.15, 1001))
    assert (result.low, result.high) == pytest.approx((0.051, 0.10))
    result = basic_interval(0.01, np.linspace(0.0, 0.05, 1001))
    assert result.low == 0.0
    assert result.high == pytest.approx(0.02 - 0.00125)


def test_binomial_and_chi_square_agree_at_the_limit():
    """Both forms of McNemar's test on either side of the number of rows where one takes over."""
    for only_first in (430, 470, 500):
        right = np.repeat([True, False], [only_first, 1000 - only_first])
        more = np.concatenate([right, [True, False]])
        assert mcnemar(right, ~right) == pytest.approx(mcnemar(more, ~more), rel=0.02, abs=1e-6)


def test_mcnemar_agrees_with_scipy():
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(0)
    for rows in (30, 300, 900):
        one, other = random.random((2, rows)) < [[0.8], [0.7]]
        only, either = int((one & ~other).sum()), int((one != other).sum())
        assert mcnemar(one, other) == pytest.approx(stats.binomtest(only, either).pvalue)


@pytest.mark.parametrize(("count", "rows", "chance"), [(0, 100, 0.025), (3, 200, 0.16), (40, 1000, 0.025), (5, 5, 0.1)])
def test_the_highest_share_agrees_with_scipy(count, rows, chance):
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(count, rows, alternative="less").proportion_ci(1 - chance).high
    assert highest_share(count, rows, chance) == pytest.approx(expected, abs=1e-6)
