import math
import re

import numpy as np
import pytest

from compress.data import bm25
from compress.data.bm25 import Bm25

pytest.importorskip("scipy")

VOCABULARY = [f"w{number}" for number in range(40)]


def texts(count, seed, words=12):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(VOCABULARY, random.integers(1, words))) for _ in range(count)]


def slow(documents, query, k1=1.2, b=0.75):
    """The formula, word by word."""
    split = [re.findall(r"\w+", document.lower()) for document in documents]
    mean = sum(map(len, split)) / len(split)
    result = []
    for words in split:
        score = 0.0
        for word in re.findall(r"\w+", query.lower()):
            having = sum(word in other for other in split)
            rare = math.log(1 + (len(split) - having + 0.5) / (having + 0.5))
            times = words.count(word)
            score += rare * times * (k1 + 1) / (times + k1 * (1 - b + b * len(words) / mean))
        result.append(score)
    return result


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_the_formula(seed):
    documents, queries = texts(30, seed), texts(10, seed + 100, words=5)
    index = Bm25(iter(documents))
    assert len(index) == 30
    for query in queries:
        assert index.scores(query) == pytest.approx(slow(documents, query), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("together", [1, 100, 1 << 24])
def test_the_best_are_those_of_all_scores_best_first(monkeypatch, together):
    monkeypatch.setattr(bm25, "SCORES_TOGETHER", together)
    documents, queries = texts(50, 2), texts(20, 3, words=6)
    index = Bm25(documents)
    places, scores = index.top(queries, 5)
    assert places.shape == scores.shape == (20, 5)
    for query, result, values in zip(queries, places, scores, strict=True):
        every = index.scores(query)
        assert values == pytest.approx(np.sort(every)[::-1][:5])
        assert every[result] == pytest.approx(values)
        order = [(-value, position) for value, position in zip(values.tolist(), result.tolist(), strict=True)]
        assert order == sorted(order)


def test_each_query_with_a_document_of_its_own():
    documents = texts(30, 4)
    queries, places = texts(12, 5), np.random.default_rng(0).integers(0, 30, 12)
    index = Bm25(documents)
    expected = [index.scores(query)[position] for query, position in zip(queries, places, strict=True)]
    assert index.pairs(queries, places) == pytest.approx(expected, rel=1e-5)


def test_capitals_and_marks_do_not_count_and_unknown_words_add_nothing():
    index = Bm25(["A cat, sat.", "the dog"])
    assert (index.scores("CAT unknown") == index.scores("cat")).all()
    assert index.scores("unknown").tolist() == [0.0, 0.0]


def test_fewer_documents_than_requested_and_no_queries():
    index = Bm25(["one", "two"])
    assert index.top(["two"], 10)[0].tolist() == [[1, 0]]
    assert index.top([], 10)[0].shape == (0, 2)


def test_documents_without_a_word_score_nothing():
    assert Bm25(["", "..."]).scores("word").tolist() == [0.0, 0.0]
