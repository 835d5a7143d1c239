"""Exact match and F1 as SQuAD counts them, on cases worked out by hand."""

import pytest

from compress.tasks.metrics.squad_metrics import match_answers, normalized_words, word_f1


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
