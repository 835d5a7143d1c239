"""The threshold that is best, against trying every one."""

import numpy as np

from compress.tasks.decoding.no_answer_threshold import best_threshold


def total(threshold, surplus, kept, dropped):
    return np.where(surplus <= threshold, kept, dropped).sum()


def test_no_other_threshold_is_better():
    random = np.random.default_rng(0)
    for _ in range(50):
        rows = int(random.integers(1, 12))
        surplus = random.integers(-3, 4, rows).astype(float)  # many ties
        kept, dropped = random.random(rows), random.random(rows)
        found = best_threshold(surplus, kept, dropped)
        every = np.arange(-6, 6, 0.25)
        best = max(total(threshold, surplus, kept, dropped) for threshold in every)
        assert np.isclose(total(found, surplus, kept, dropped), best)


def test_it_lies_between_rows():
    assert best_threshold(np.array([0.0, 4.0]), np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 2.0


def test_all_or_none():
    surplus = np.array([-1.0, 2.0])
    assert best_threshold(surplus, np.ones(2), np.zeros(2)) > 2.0
    assert best_threshold(surplus, np.zeros(2), np.ones(2)) < -1.0
