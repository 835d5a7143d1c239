"""Exact search and what found documents are worth, against the slow way."""

import math

import numpy as np
import pytest

from compress.tasks import decoding
from compress.tasks.decoding import nearest_documents
from compress.tasks.metrics import is_relevant, ndcg, recall_at, reciprocal_ranks


def unit(random, rows, width=8):
    values = random.normal(size=(rows, width)).astype(np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


@pytest.mark.parametrize(("queries", "documents", "count"), [(5, 3, 10), (7, 50, 5), (30, 90, 20), (3, 64, 64)])
def test_blocks_find_what_sorting_everything_finds(monkeypatch, queries, documents, count):
    monkeypatch.setattr(decoding, "QUERIES", 4)
    monkeypatch.setattr(decoding, "DOCUMENTS", 16)
    random = np.random.default_rng(queries)
    embedded_queries, searched = unit(random, queries), unit(random, documents)
    result, scores = nearest_documents(embedded_queries, searched, count)
    products = embedded_queries @ searched.T
    order = np.argsort(-products, axis=1, kind="stable")[:, :count]
    assert result.dtype == np.int32
    assert result.tolist() == order.tolist()
    np.testing.assert_allclose(scores, np.take_along_axis(products, order, axis=1), atol=1e-6)


@pytest.mark.parametrize("block", [1, 3, 16])
def test_of_equal_documents_the_earlier_comes_first(monkeypatch, block):
    monkeypatch.setattr(decoding, "DOCUMENTS", block)
    documents = np.eye(2, dtype=np.float32)[[0, 1, 0, 1, 0, 0]]
    result, scores = nearest_documents(np.eye(2, dtype=np.float32), documents, 3)
    assert result.tolist() == [[0, 2, 4], [1, 3, 0]]
    assert scores.tolist() == [[1, 1, 1], [1, 1, 0]]


def test_no_queries_find_nothing():
    assert nearest_documents(np.zeros((0, 4), np.float32), np.ones((5, 4), np.float32), 3)[0].shape == (0, 3)


def test_metrics_of_a_list_by_hand():
    result = np.array([[4, 7, 1, 9], [2, 3, 5, 8]])
    right = is_relevant(result, np.array([[7, 9, 6], [1, -1, -1]]))
    true = np.array([3, 1])
    assert right.tolist() == [[False, True, False, True], [False] * 4]
    assert reciprocal_ranks(right).tolist() == [0.5, 0.0]
    assert recall_at(right, true, 2).tolist() == pytest.approx([1 / 3, 0])
    ideal = 1 + 1 / math.log2(3) + 1 / math.log2(4)
    best_order = np.arange(10) < true[:, None]
    assert ndcg(right, best_order, 10).tolist() == pytest.approx([(1 / math.log2(3) + 1 / math.log2(5)) / ideal, 0])


@pytest.mark.parametrize("seed", range(3))
def test_gains_agree_with_scikit_learn(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(seed)
    right = random.random((20, 12)) < 0.3
    right[:, 0] |= ~right.any(axis=1)
    places = np.tile(np.arange(12, 0, -1), (20, 1))
    expected = [metrics.ndcg_score([line], [index], k=10) for line, index in zip(right, places, strict=True)]
    assert ndcg(right, -np.sort(-right.astype(float), axis=1), 10) == pytest.approx(expected)
