"""Okapi BM25: how well documents answer a query by the words they share, rare words counting more.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the weight of rare words
that Lucene uses, log(1 + (n - d + 0.5) / (d + 0.5)) for a word that d of n documents have: never below zero. Words are
runs of letters and digits in small letters; nothing is stemmed and no word is left out.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress.environment import require

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

WORD = re.compile(r"\w+")
SATURATION = 1.2
"""k1: a word that stands twice in a document counts less than double; the larger, the closer to double."""
BY_LENGTH = 0.75
"""b: how far a document's words count less where it is longer than most, from 0 (not at all) to 1 (in proportion)."""
SCORES_TOGETHER = 1 << 24
"""Scores held in memory at a time, at most, where many queries are asked (64 MB)."""


class Bm25:
    """An index of documents by their words. Memory is in proportion to the different words of each document."""

    def __init__(self, documents: Iterable[str], saturation: float = SATURATION, by_length: float = BY_LENGTH) -> None:
        """Read all ``documents`` once; they are numbered as they come."""
        require("scipy", "train")
        self._places: dict[str, int] = {}
        counts = self._counted(documents, learn=True)
        self._weights = _weighed(counts, saturation, by_length)

    def __len__(self) -> int:
        return int(self._weights.shape[0])

    def scores(self, query: str) -> NDArray[np.float32]:
        """The score of every document, 0 for one that shares no word with ``query``."""
        asked = self._counted([query]).toarray()[0]
        found: NDArray[np.float32] = self._weights @ asked
        return found

    def pairs(self, queries: Sequence[str], documents: Sequence[int] | NDArray[Any]) -> NDArray[np.float32]:
        """The score of each query with one document, that of the same place in ``documents``."""
        shared = self._counted(queries).multiply(self._weights[np.asarray(documents, dtype=np.intp)])
        return np.asarray(shared.sum(axis=1), dtype=np.float32).reshape(-1)

    def top(self, queries: Sequence[str], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The ``k`` best documents of each query, best first, and their scores: both (queries, k).

        There are fewer columns where there are fewer documents. Of equal scores the earlier document comes first, but
        which of those that are equal at the end of the list still belong to it is left open: where few documents share
        a word with the query, the rest have score 0 and mean nothing.
        """
        k = min(k, len(self))
        by_word = self._weights.T.tocsr()
        places, scores = [np.zeros((0, k), np.int64)], [np.zeros((0, k), np.float32)]
        for some in self._parts(queries):
            every = (self._counted(some) @ by_word).toarray()
            found = np.argpartition(every, len(self) - k, axis=1)[:, len(self) - k :]
            values = np.take_along_axis(every, found, axis=1)
            order = np.lexsort((found, -values), axis=-1)
            places.append(np.take_along_axis(found, order, axis=1))
            scores.append(np.take_along_axis(values, order, axis=1))
        return np.concatenate(places), np.concatenate(scores)

    def _parts(self, queries: Sequence[str]) -> Iterator[Sequence[str]]:
        size = max(1, SCORES_TOGETHER // max(1, len(self)))
        return (queries[start : start + size] for start in range(0, len(queries), size))

    def _counted(self, texts: Iterable[str], learn: bool = False) -> csr_matrix:
        """How often each known word stands in each text: (texts, words). To ``learn`` is to get to know new ones."""
        from scipy.sparse import csr_matrix

        places, counts, ends = array("i"), array("f"), array("q", [0])
        for text in texts:
            for word, count in Counter(WORD.findall(text.lower())).items():
                place = self._places.setdefault(word, len(self._places)) if learn else self._places.get(word)
                if place is not None:
                    places.append(place)
                    counts.append(count)
            ends.append(len(places))
        found = (np.array(counts, np.float32), np.array(places, np.int32), np.array(ends, np.int64))
        return csr_matrix(found, shape=(len(ends) - 1, len(self._places)))


def _weighed(counts: csr_matrix, saturation: float, by_length: float) -> csr_matrix:
    """What each word of each document adds to the score of a query that has it once."""
    documents, words = counts.shape
    having = np.bincount(counts.indices, minlength=words)
    rare = np.log1p((documents - having + 0.5) / (having + 0.5))
    lengths = np.asarray(counts.sum(axis=1), dtype=np.float64).reshape(-1)
    mean = lengths.mean() if lengths.any() else 1.0
    damped = saturation * (1.0 - by_length + by_length * lengths / mean)
    each = np.repeat(damped, np.diff(counts.indptr))
    weighed = counts.copy()
    weighed.data = (rare[counts.indices] * counts.data * (saturation + 1.0) / (counts.data + each)).astype(np.float32)
    return weighed
