"""From characters to tokens and back, against slow loops."""

import numpy as np
import pytest

from compress.tasks.decoding import MAX_SPANS, SPAN, best_spans, best_threshold, merge_windows, token_span

QUESTION = (-1, -1)
PIECES = [QUESTION, QUESTION, (0, 3), (4, 6), (6, 9), (10, 10), (10, 14), QUESTION]
"""[CLS] question, then `The`, `un`, `##der`, an empty token, `dogs`, [SEP]."""


@pytest.mark.parametrize(
    ("answer", "places"),
    [((0, 3), (2, 2)), ((4, 9), (3, 4)), ((4, 14), (3, 6)), ((5, 8), (3, 4)), ((10, 14), (6, 6))],
)
def test_token_span_of_an_answer(answer, places):
    assert token_span(PIECES, answer, is_first=True, is_last=True) == places


def test_a_partial_answer_has_no_token_span():
    window = PIECES[2:5]
    assert token_span([QUESTION, *window], (4, 9), False, False) == (2, 3)
    assert token_span([QUESTION, *window], (4, 14), False, False) == (0, 0)
    assert token_span([QUESTION, *PIECES[3:]], (0, 6), False, True) == (0, 0)
    assert token_span([QUESTION, QUESTION], (0, 3), True, True) == (0, 0)


def test_characters_without_tokens_at_the_ends():
    assert token_span([QUESTION, (2, 5)], (0, 5), is_first=True, is_last=True) == (1, 1)
    assert token_span([QUESTION, (2, 5)], (2, 7), is_first=True, is_last=True) == (1, 1)
    assert token_span([QUESTION, (2, 5)], (6, 7), is_first=True, is_last=True) == (0, 0)


def slow_spans(start, end, context, longest):
    places = [index for index, inside in enumerate(context) if inside]
    spans = [(i, j, float(start[i] + end[j])) for i in places for j in places if i <= j < i + longest]
    return sorted(spans, key=lambda span: (-span[2], span[0], span[1]))[:MAX_SPANS]


def test_the_best_spans_of_all():
    random = np.random.default_rng(0)
    for pieces, longest in ((12, 4), (40, 30), (7, 30), (5, 1)):
        start, end = random.normal(size=(2, 3, pieces)).astype(np.float32)
        context = np.zeros((3, pieces), np.int64)
        for line, (low, high) in enumerate(((2, pieces - 1), (3, 4), (0, 0))):
            context[line, low:high] = 1
        result = best_spans(start, end, context, longest)
        for line in range(3):
            expected = slow_spans(start[line], end[line], context[line], longest)
            assert [span[:2] for span in result[line]] == [span[:2] for span in expected]
            assert np.allclose([span[2] for span in result[line]], [span[2] for span in expected])


def test_windows_are_merged():
    first = np.array([(-1, -1, 3.0), (0, 4, 5.0), (5, 9, 1.0)], dtype=SPAN)
    second = np.array([(-1, -1, 2.0), (5, 9, 6.0), (12, 15, 0.0)], dtype=SPAN)
    spans, nothing = merge_windows([first, second])
    assert spans[["first", "last"]].tolist() == [(5, 9), (0, 4), (12, 15)]
    assert spans["score"].tolist() == [6.0, 5.0, 0.0]
    assert nothing == 2.0


def total(threshold, surplus, answered, dropped):
    return np.where(surplus <= threshold, answered, dropped).sum()


def test_no_other_threshold_is_better():
    random = np.random.default_rng(0)
    for _ in range(50):
        rows = int(random.integers(1, 12))
        surplus = random.integers(-3, 4, rows).astype(float)  # many ties
        answered, dropped = random.random(rows), random.random(rows)
        result = best_threshold(surplus, answered, dropped)
        every = np.arange(-6, 6, 0.25)
        best = max(total(threshold, surplus, answered, dropped) for threshold in every)
        assert np.isclose(total(result, surplus, answered, dropped), best)


def test_it_lies_between_rows():
    assert best_threshold(np.array([0.0, 4.0]), np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 2.0


def test_all_or_none():
    surplus = np.array([-1.0, 2.0])
    assert best_threshold(surplus, np.ones(2), np.zeros(2)) > 2.0
    assert best_threshold(surplus, np.zeros(2), np.ones(2)) < -1.0
