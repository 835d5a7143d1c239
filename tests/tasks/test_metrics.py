"""Scores of many draws at once against the score of the repeated rows."""

import numpy as np
import pytest

from compress.recipe.task_schema import Task
from compress.tasks import KINDS, task_info
from compress.tasks.metrics import match_answers, normalized_words, pearson, spearman, weighted_counts, word_f1
from tests.tasks.repeated_scores import repeated_scores

LABELS = {"classification": ("a", "b", "c", "d"), "multi_label": ("a", "b", "c"), "regression": ()}


def answered(name, rows, random, classes=3):
    """Answers and gold; the last class is never true, so that there is one with no rows."""
    if name == "regression":
        gold = random.integers(0, 6, rows).astype(np.float32)
        return (gold + random.normal(size=rows)).round(1).astype(np.float32), gold
    if name == "multi_label":
        return random.random((rows, 3)).astype(np.float32), (random.random((rows, 3)) < 0.3).astype(np.float32)
    odds = random.random((rows, classes + 1)).astype(np.float32)
    return odds / odds.sum(axis=1, keepdims=True), random.integers(0, classes, rows)


def times_of(rows, draws, random):
    drawn = [np.bincount(random.integers(0, rows, rows), minlength=rows) for _ in range(draws)]
    return np.stack(drawn).astype(np.float64)


@pytest.mark.parametrize("rows", [1, 2, 7, 50])
@pytest.mark.parametrize("name", LABELS)
def test_scores_of_draws_are_those_of_the_repeated_rows(name, rows):
    random = np.random.default_rng(rows)
    kind, info = KINDS[name], task_info(Task(kind=name, data={"train": "a.tsv"}), LABELS[name])
    answers, gold = answered(name, rows, random)
    times = times_of(rows, 20, random)
    fast = kind.weighted_scores(answers, gold, info, times)
    slow = repeated_scores(kind, answers, gold, info, times)
    assert set(fast) == set(slow)
    for metric, values in slow.items():
        np.testing.assert_allclose(fast[metric], values, atol=1e-9, err_msg=metric)


def test_two_classes_have_the_f1_of_the_last():
    random = np.random.default_rng(0)
    kind, info = KINDS["classification"], task_info(Task(kind="classification", data={"train": "a.tsv"}), ("no", "yes"))
    gold, answers = random.integers(0, 2, 30), random.random((30, 2))
    times = times_of(30, 20, random)
    slow = repeated_scores(kind, answers, gold, info, times)
    np.testing.assert_allclose(kind.weighted_scores(answers, gold, info, times)["f1"], slow["f1"])


def test_a_draw_of_one_value_has_no_correlation_whatever_rounding_does():
    left, right = np.array([0.1, 0.1, 0.7]), np.array([1.0, 2.0, 3.0])
    times = np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    assert pearson(left, right, times)[0] == 0.0
    assert spearman(left, right, times)[0] == 0.0
    assert pearson(left, right, times)[1] == pytest.approx(np.corrcoef(left, right)[0, 1])


def test_weighted_counts_count_rows_by_weight():
    values, times = np.array([2, 0, 2]), np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 3.0]])
    assert weighted_counts(values, 4, times).tolist() == [[1, 0, 2, 0], [0, 0, 3, 0]]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("The  Cat!", ["cat"]),
        ("an  apple, a day", ["apple", "day"]),
        ("U.S.", ["us"]),
        ("well-known", ["wellknown"]),
        ("Theatre another", ["theatre", "another"]),  # articles are full words
        ("a-b the.", ["ab"]),  # punctuation goes first
        ("«Ünal» 5–3", ["«ünal»", "5–3"]),  # only ASCII punctuation counts as such
        ("the", []),
        ("", []),
    ],
)
def test_words_that_count(text, left):
    assert list(normalized_words(text)) == left


@pytest.mark.parametrize(
    ("answer", "true", "value"),
    [
        ("the red car", "red car", 1.0),
        ("red car", "blue car", 0.5),
        ("in 1984", "1984", 2 / 3),
        ("new new york", "new york", 0.8),  # a word counts as often as it occurs
        ("blue", "red", 0.0),
        ("", "", 1.0),
        ("", "red", 0.0),
        ("the", "", 1.0),
    ],
)
def test_f1(answer, true, value):
    assert word_f1(answer, true) == pytest.approx(value)
    assert word_f1(true, answer) == pytest.approx(value)


def test_the_best_of_the_accepted_answers_counts():
    assert match_answers("car", ["red car", "a car", "truck"]) == (True, 1.0)
    exact, shared = match_answers("red car today", ["truck", "red car"])
    assert not exact
    assert shared == pytest.approx(0.8)


def test_no_answer():
    assert match_answers("", []) == (True, 1.0)
    assert match_answers("car", []) == (False, 0.0)
    assert match_answers("", ["car"]) == (False, 0.0)
    assert match_answers("", ["the"]) == (True, 1.0)  # an accepted answer without words is none
