from itertools import pairwise

import numpy as np
import pytest

from compress.measure import BootstrapScorer
from compress.measure.quality.calibration import assign_bins, calibrate
from compress.measure.quality.quality_result import Bin, Calibration
from compress.measure.result_base import Score
from compress.model_folder.model_info import TaskInfo
from compress.tasks import KINDS

CLASSES = TaskInfo(name="t", kind="classification", text=("text",), labels=("a", "b"), metric="accuracy", max_length=8)
LABELS = CLASSES.model_copy(update={"kind": "multi_label", "labels": ("a", "b", "c"), "metric": "micro_f1"})


def stated(confidences):
    """Answers that decide for the first class with these confidences."""
    first = np.asarray(confidences, dtype=np.float64)
    return np.stack([first, 1.0 - first], axis=1)


def calibrated(rows, random, shift=0.0):
    """Confidences, and gold that is right ``shift`` less often than they say."""
    probabilities = random.uniform(0.55, 1.0, rows)
    return stated(probabilities), (random.random(rows) >= probabilities - shift).astype(np.int64)


def look(answers, gold, task=CLASSES, resampling=200):
    return calibrate(BootstrapScorer(KINDS[task.kind], task, resampling), answers, gold)


def slow_error(answers, gold, edges):
    """Bin by bin, row by row."""
    total = 0.0
    for low, high in pairwise(edges):
        rows = [row for row in range(len(gold)) if low < answers[row].max() <= high]
        if rows:
            right = np.mean([answers[row].argmax() == gold[row] for row in rows])
            total += len(rows) / len(gold) * abs(right - np.mean([answers[row].max() for row in rows]))
    return total


def test_error_agrees_with_counting_bin_by_bin():
    answers, gold = calibrated(300, np.random.default_rng(0), shift=0.2)
    result = look(answers, gold)
    edges = [0.0, *np.quantile(answers.max(axis=1), np.arange(1, 15) / 15), 1.0]
    assert result.error.value == pytest.approx(slow_error(answers, gold, edges))
    assert len(result.bins) == 15
    assert [each.rows for each in result.bins] == [20] * 15
    assert sum(each.rows * abs(each.correct - each.confidence) for each in result.bins) / 300 == pytest.approx(
        result.error.value
    )


def test_over_confident_model():
    answers, gold = calibrated(2000, np.random.default_rng(1), shift=0.2)
    result = look(answers, gold)
    assert result.over_confident
    assert result.lean == "overconfident"
    assert result.error.low < 0.2 < result.error.high
    assert result.error.low > result.by_chance


def test_under_confident_model():
    result = look(*calibrated(2000, np.random.default_rng(1), shift=-0.1))
    assert not result.over_confident
    assert result.lean == "underconfident"
    assert result.error.value > result.by_chance


def test_a_calibrated_model_is_above_chance_one_time_in_twenty():
    random = np.random.default_rng(2)
    result = [look(*calibrated(400, random), resampling=100) for _ in range(60)]
    assert sum(each.error.value > each.by_chance for each in result) <= 8
    assert all(0.0 <= each.error.low <= each.error.value <= each.error.high for each in result)


def test_right_on_average_is_neither_over_nor_under_confident():
    random = np.random.default_rng(4)
    result = [look(*calibrated(30, random), resampling=100) for _ in range(60)]
    assert sum(each.lean != "neither" for each in result) <= 8
    sure = look(stated(np.full(30, 0.501)), np.arange(30) % 2)
    assert (sure.lean, sure.over_confident) == ("neither", False)


def test_opposite_errors_cancel_on_average():
    probabilities = np.array([0.99] * 50 + [0.51] * 50)
    gold = np.array([0] * 25 + [1] * 25 + [0] * 50)
    result = look(stated(probabilities), gold)
    assert result.error.value > 0.4
    assert result.lean == "neither"


def test_resamples_draw_rows_with_all_their_decisions():
    random = np.random.default_rng(3)
    gold = random.integers(0, 2, (50, 3)).astype(np.float32)
    answers = random.random((50, 3)).astype(np.float32)
    kind, drawn = KINDS["multi_label"], BootstrapScorer(KINDS["multi_label"], LABELS, 100)
    result = calibrate(drawn, answers, gold)
    assert sum(each.rows for each in result.bins) == 150
    sure = kind.confidence(answers, gold)
    places, errors = assign_bins(sure.stated), []
    for times in np.concatenate(list(drawn.resample_counts(50))):
        weights = times[sure.row] * (sure.right - sure.stated)
        errors.append(sum(abs(weights[places == index].sum()) for index in set(places)) / times[sure.row].sum())
    low, high = np.quantile(errors, (0.025, 0.975))
    value = result.error.value
    assert result.error.low == pytest.approx(max(0.0, min(2 * value - high, value)))
    assert result.error.high == pytest.approx(max(2 * value - low, value))


def test_equal_confidences_share_a_bin_whatever_their_order():
    probabilities = np.array([0.9] * 50 + [0.6, 0.7, 0.8])
    places = assign_bins(probabilities)
    assert len(set(places[:50])) == 1
    assert set(places) == set(range(places.max() + 1))
    order = np.random.default_rng(0).permutation(53)
    assert (assign_bins(probabilities[order]) == places[order]).all()


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_few_rows_give_few_bins(rows):
    result = look(stated(np.linspace(0.6, 0.9, rows)), np.zeros(rows, np.int64))
    assert sum(each.rows for each in result.bins) == rows
    assert result.error.low <= result.error.value <= result.error.high


def test_a_certain_and_perfect_model_has_no_error():
    result = look(stated(np.ones(40)), np.zeros(40, np.int64))
    assert (result.error.value, result.error.high, result.by_chance, result.over_confident) == (0.0, 0.0, 0.0, False)
    assert [(each.confidence, each.correct, each.rows) for each in result.bins] == [(1.0, 1.0, 40)]


def test_scores_have_no_calibration():
    task = CLASSES.model_copy(update={"kind": "regression", "metric": "pearson", "labels": ()})
    assert look(np.linspace(0, 1, 9), np.linspace(0, 1, 9), task) is None


def test_rounding_beyond_one_counts_as_certainty():
    result = Calibration(
        error=Score(value=0.0, low=0.0, high=0.0), bins=(Bin(confidence=1.0 + 2e-16, correct=1.0, rows=9),)
    )
    assert result.lean == "neither"
