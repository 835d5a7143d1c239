"""Hard negatives: which documents are taken, against a slow loop, and how many are retrieved."""

import numpy as np
import pytest

pytest.importorskip("scipy")

from compress.data.bm25 import Bm25
from compress.data.hard_negatives import with_hard_negatives

WORDS = ["red", "blue", "lake", "mill", "book", "film", "song"]


def row_of(query, positive, negatives=()):
    return {"query": query, "positives": [positive], "negatives": list(negatives)}


def rows_of(count, seed=0):
    """Rows of which many share a query or a document."""
    random = np.random.default_rng(seed)

    def text(words):
        return " ".join(WORDS[index] for index in random.integers(0, len(WORDS), words))

    return [row_of(text(1), text(3), ["given"] if number % 7 == 3 else []) for number in range(count)]


def slow(rows, count):
    documents = list(dict.fromkeys(row["positives"][0] for row in rows))
    index = Bm25(documents)
    for row in rows:
        right = {row["query"], *(other["positives"][0] for other in rows if other["query"] == row["query"])}
        scores = index.scores(row["query"])
        order = np.lexsort((np.arange(len(documents)), -scores))
        best = [documents[position] for position in order if scores[position] > 0 and documents[position] not in right]
        yield row["negatives"] or best[:count]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_negatives_are_the_best_documents_that_are_no_answers(count, seed):
    rows = rows_of(60, seed)
    index, result = Bm25(row["positives"][0] for row in rows), list(with_hard_negatives(rows, count))
    assert [row["query"] for row in result] == [row["query"] for row in rows]
    for row, expected in zip(result, slow(rows, count), strict=True):
        if row["negatives"] != expected:  # which of equal scores are taken is left open
            query, names = row["query"], [other["positives"][0] for other in rows]
            scores = [
                [index.scores(query)[names.index(text)] for text in each] for each in (row["negatives"], expected)
            ]
            assert scores[0] == scores[1]


def test_queries_are_searched_once_and_only_if_needed(monkeypatch):
    """One frequent query must not have all the others look as far down as it must itself."""
    calls, top = {}, Bm25.top

    def noting(index, queries, k):
        assert not set(calls) & set(queries)
        calls.update(dict.fromkeys(queries, k))
        return top(index, queries, k)

    monkeypatch.setattr(Bm25, "top", noting)
    frequent = [row_of("red", f"red {number}") for number in range(300)]
    given = [row_of("mill", "the mill", ["given"])]
    rows = [*frequent, row_of("blue", "blue lake"), row_of("blue", "blue book"), row_of("lake", "a lake"), *given]
    result = list(with_hard_negatives(rows, 2))
    assert calls["red"] >= 302
    assert {query: k for query, k in calls.items() if query != "red"} == {"blue": 5, "lake": 4}
    assert [row["negatives"] for row in result[-4:]] == [[], [], ["blue lake"], ["given"]]


def test_a_query_is_no_negative_of_its_own():
    """Pairs of questions that mean the same, in both directions."""
    rows = [row_of("red lake", "blue lake"), row_of("blue lake", "red lake"), row_of("red mill", "blue mill")]
    rows.append(row_of("song", "red film"))
    for row in list(with_hard_negatives(rows, 2))[:3]:
        assert row["negatives"]
        assert row["query"] not in row["negatives"]
