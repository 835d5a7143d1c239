"""The interval of a clustered mean covers the true mean about as often as it says."""

import math

import numpy as np

from compress.pretrain.scores.clustered_mean import Estimate, clustered_mean


def test_intervals_of_clusters_cover_the_mean():
    random, covered, draws = np.random.default_rng(0), 0, 400
    for _ in range(draws):
        sizes = random.integers(5, 30, 25)
        clusters = np.repeat(np.arange(25), sizes)
        values = random.normal(2.0, 1.0, 25)[clusters] + random.normal(0.0, 0.5, len(clusters))
        estimate = clustered_mean(values, clusters)
        covered += estimate.low < 2.0 < estimate.high
    assert abs(covered / draws - 0.95) < 4.5 * math.sqrt(0.05 * 0.95 / draws)


def test_clusters_of_one_value_are_the_usual_interval():
    values = np.random.default_rng(0).normal(size=50)
    estimate = clustered_mean(values, np.arange(50))
    assert math.isclose((estimate.high - estimate.low) / 2, 2.0096 * values.std(ddof=1) / math.sqrt(50), rel_tol=1e-3)


def test_one_cluster_says_nothing():
    estimate = clustered_mean(np.ones(5), np.zeros(5, int))
    assert estimate == Estimate(value=1.0)
    assert Estimate.model_validate_json(estimate.model_dump_json()) == estimate
    assert estimate.text == "1.000 (one document: no interval)"
    assert estimate.exponential().low is None


def test_perplexity_is_a_finite_number():
    assert Estimate(value=0.0, low=-1.0, high=1.0).exponential().value == 1.0
    assert math.isfinite(Estimate(value=900.0, low=800.0, high=1_000.0).exponential().high)
