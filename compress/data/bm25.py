"""Okapi BM25: how well documents answer a query by the words they share, rare words counting more.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the weight of rare words
that Lucene uses, log(1 + (n - d + 0.5) / (d + 0.5)) for a word that d of n documents have: never below zero. Words are
runs of letters and digits in lower case; nothing is stemmed and no word is left out.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress.environment import require

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

WORD = re.compile(r"\w+")
SATURATION = 1.2
"""k1: a word that occurs twice in a document counts less than double; the larger, the closer to double."""
LENGTH_WEIGHT = 0.75
"""b: how far a document's words count less where it is longer than most, from 0 (not at all) to 1 (in proportion)."""
SCORES_TOGETHER = 1 << 24
"""Most scores in memory at a time, where there are many queries (64 MB)."""


class Bm25:
    """An index of documents by their words. Memory is in proportion to the different words of each document."""

    def __init__(self, documents: Iterable[str]) -> None:
        """Read all ``documents`` once; they are numbered as they come."""
        require("scipy", "train")
        self._word_index: dict[str, int] = {}
        self._weights = _word_weights(self._count_words(documents, learn=True))

    def __len__(self) -> int:
        return int(self._weights.shape[0])

    def scores(self, query: str) -> NDArray[np.float32]:
        """Return the score of every document, 0 for one that shares no word with ``query``."""
        words = self._count_words([query]).toarray()[0]
        return self._weights @ words

    def pairs(self, queries: Sequence[str], documents: Sequence[int] | NDArray[Any]) -> NDArray[np.float32]:
        """Return the score of each query with the document of the same position in ``documents``."""
        shared = self._count_words(queries).multiply(self._weights[np.asarray(documents, dtype=np.intp)])
        return np.asarray(shared.sum(axis=1), dtype=np.float32).reshape(-1)

    def top(self, queries: Sequence[str], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the ``k`` best documents of each query, best first, and their scores: both (queries, k).

        There are fewer columns where there are fewer documents. Of equal scores the earlier document comes first, but
        which of the documents that are equal at the end of the list are included is undefined: where few documents
        share a word with the query, the rest have score 0 and mean nothing.
        """
        k = min(k, len(self))
        by_word = self._weights.T.tocsr()
        documents, scores = [np.zeros((0, k), np.int64)], [np.zeros((0, k), np.float32)]
        size = max(1, SCORES_TOGETHER // max(1, len(self)))
        for start in range(0, len(queries), size):
            every = (self._count_words(queries[start : start + size]) @ by_word).toarray()
            best = np.argpartition(every, len(self) - k, axis=1)[:, len(self) - k :]
            values = np.take_along_axis(every, best, axis=1)
            order = np.lexsort((best, -values), axis=-1)
            documents.append(np.take_along_axis(best, order, axis=1))
            scores.append(np.take_along_axis(values, order, axis=1))
        return np.concatenate(documents), np.concatenate(scores)

    def _count_words(self, texts: Iterable[str], learn: bool = False) -> csr_matrix:
        """Return the count of each known word in each text: (texts, words); ``learn`` adds new words."""
        from scipy.sparse import csr_matrix

        words, counts, ends = array("i"), array("f"), array("q", [0])
        for text in texts:
            for word, count in Counter(WORD.findall(text.lower())).items():
                if learn:
                    self._word_index.setdefault(word, len(self._word_index))
                if word in self._word_index:
                    words.append(self._word_index[word])
                    counts.append(count)
            ends.append(len(words))
        arrays = (np.array(counts, np.float32), np.array(words, np.int32), np.array(ends, np.int64))
        return csr_matrix(arrays, shape=(len(ends) - 1, len(self._word_index)))


def _word_weights(counts: csr_matrix) -> csr_matrix:
    """Return what each word of each document adds to the score of a query that has it once."""
    documents, words = counts.shape
    having = np.bincount(counts.indices, minlength=words)
    rare = np.log1p((documents - having + 0.5) / (having + 0.5))
    lengths = np.asarray(counts.sum(axis=1), dtype=np.float64).reshape(-1)
    mean = lengths.mean() if lengths.any() else 1.0
    damped = SATURATION * (1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * lengths / mean)
    each = np.repeat(damped, np.diff(counts.indptr))
    weighed = counts.copy()
    weighed.data = (rare[counts.indices] * counts.data * (SATURATION + 1.0) / (counts.data + each)).astype(np.float32)
    return weighed
