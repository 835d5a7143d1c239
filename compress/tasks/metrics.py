"""Metrics: correlations and means of weighted rows, of class counts, of ranked lists, of answer texts. Pure numpy.

Weights are always (draws, rows): a row of weight two counts twice. That equals repeating the row, and needs no sorting,
copying or counting again for each draw. Undefined scores of class counts are 0. SQuAD's exact match and F1 (Rajpurkar
and others, 2016 and 2018) compare texts without case, punctuation, articles and double spaces, and take the best of the
accepted answers; where a question has no answer, only predicting none is right.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from compress.tasks.base import Array

Weights = NDArray[np.float64]
"""How often each row counts (draws, rows)."""
Scores = NDArray[np.float64]
"""A metric of each draw (draws,)."""


def safe_divide(part: Array, total: Array) -> NDArray[np.float64]:
    """Return ``part / total``, and 0 where ``total`` is not positive."""
    zeros = np.zeros(np.broadcast_shapes(np.shape(part), np.shape(total)), np.float64)
    return np.divide(part, total, out=zeros, where=np.asarray(total) > 0)


def weighted_means(values: Mapping[str, Array], weights: Weights) -> dict[str, Scores]:
    """Return the weighted mean of each metric's per-row values (rows,)."""
    rows = weights.sum(axis=1)
    return {name: safe_divide(weights @ each, rows) for name, each in values.items()}


def weighted_counts(values: NDArray[np.int64], classes: int, weights: Weights) -> NDArray[np.float64]:
    """Return how often each of ``classes`` occurs among ``values`` (rows,) in each draw: (draws, classes)."""
    return np.stack([np.bincount(values, weights=line, minlength=classes) for line in weights])


def pearson(left: NDArray[np.float64], right: NDArray[np.float64], weights: Weights) -> Scores:
    """Return the linear correlation of two columns (rows,) in each draw; 0 where one side is constant."""
    return np.array([_pearson(left, right, line) for line in weights])


def spearman(left: NDArray[np.float64], right: NDArray[np.float64], weights: Weights) -> Scores:
    """Return the rank correlation in each draw; equal values share the mean of their ranks."""
    first, second = (np.unique(side, return_inverse=True)[1] for side in (left, right))
    return np.array([_pearson(_ranks(first, line), _ranks(second, line), line) for line in weights])


def _ranks(value_index: NDArray[np.intp], line: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each row in one draw; ``value_index`` is its value's index among the sorted distinct ones."""
    counts = np.bincount(value_index, weights=line)
    return (np.cumsum(counts) - (counts - 1.0) / 2.0)[value_index]


def _pearson(left: NDArray[np.float64], right: NDArray[np.float64], line: NDArray[np.float64]) -> float:
    rows, first = line.sum(), int(np.argmax(line > 0))
    if not rows:
        return 0.0
    # Relative to a drawn value, a side that is constant in this draw is exactly zero, whatever rounding does.
    left, right = left - left[first], right - right[first]
    left, right = left - (line @ left) / rows, right - (line @ right) / rows
    weighted = line * left
    spread = np.sqrt(weighted @ left) * np.sqrt((line * right) @ right)
    return float((weighted @ right) / spread) if spread > 0 else 0.0


@dataclass(frozen=True)
class ClassCounts:
    """For each class, in the order of the labels: true positives, predicted and true occurrences, (draws, classes)."""

    hits: Array
    predicted: Array
    true: Array

    def once(self) -> ClassCounts:
        """Return the counts of the first draw as integers (classes,)."""
        return ClassCounts(*(counts[0].astype(np.int64) for counts in (self.hits, self.predicted, self.true)))


def f1(hits: Array, predicted: Array, true: Array) -> NDArray[np.float64]:
    """Return F1, 2·hits / (predicted + true); 0 for classes that are neither predicted nor true."""
    return safe_divide(2.0 * hits, predicted + true)


def class_f1(counts: ClassCounts) -> NDArray[np.float64]:
    """Return the F1 of each class (draws, classes)."""
    return f1(counts.hits, counts.predicted, counts.true)


def micro_f1(counts: ClassCounts) -> Scores:
    """Return the F1 over the decisions on all classes (draws,)."""
    return f1(*(each.sum(axis=1) for each in (counts.hits, counts.predicted, counts.true)))


def macro_f1(counts: ClassCounts) -> Scores:
    """Return the mean F1 over the classes that occur, predicted or true (draws,); absent classes do not count."""
    present = (counts.predicted + counts.true) > 0
    return safe_divide(np.where(present, class_f1(counts), 0.0).sum(axis=1), present.sum(axis=1))


def matthews(counts: ClassCounts, rows: NDArray[np.float64]) -> Scores:
    """Return Matthews' correlation for any number of classes (Gorodkin 2004); 0 where one side is constant."""
    hits, predicted, true = (each.astype(np.float64) for each in (counts.hits, counts.predicted, counts.true))
    by_chance = (true * predicted).sum(axis=1)
    spread = np.sqrt(rows**2 - (predicted**2).sum(axis=1)) * np.sqrt(rows**2 - (true**2).sum(axis=1))
    return safe_divide(hits.sum(axis=1) * rows - by_chance, spread)


def count_pairs(true: Array, predicted: Array, classes: int) -> NDArray[np.int64]:
    """Return the confusion matrix: how often each class (lines) was predicted as each (columns)."""
    pairs = true.astype(np.int64) * classes + predicted
    return np.bincount(pairs.ravel(), minlength=classes**2).reshape(classes, classes)


def total_variation(first: Array, second: Array) -> NDArray[np.float64]:
    """Return the total variation distance of two distributions per row: the probability that moved, 0 to 1."""
    return 0.5 * np.abs(first.astype(np.float64) - second).sum(axis=-1)


Relevant = NDArray[np.bool_]
"""Whether each item of a list (queries, ranks) is right, the best rank first."""
QueryScores = NDArray[np.float64]
"""One number per query."""


def is_relevant(retrieved: Array, true: Array) -> Relevant:
    """Return which of the numbers ``retrieved`` (queries, ranks) are among the ``true`` ones (queries, any)."""
    relevant = np.zeros(retrieved.shape, np.bool_)
    for column in true.T:
        relevant |= retrieved == column[:, None]
    return relevant


def reciprocal_ranks(relevant: Relevant) -> QueryScores:
    """Return 1 / the rank of the first right item, counted from 1; 0 where there is none."""
    first = relevant.argmax(axis=1) + 1
    return np.where(relevant.any(axis=1), 1.0 / first, 0.0)


def recall_at(relevant: Relevant, true: Array, depth: int) -> QueryScores:
    """Return the share of the ``true`` (queries,) number of right items that is among the first ``depth``."""
    return relevant[:, :depth].sum(axis=1) / true


def ndcg(gains: Array, ideal: Array, depth: int) -> QueryScores:
    """Return nDCG of the first ``depth`` ranks: gains divided by log2(rank + 1), relative to the ideal order's.

    Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques" (2002).

    Args:
        gains: of the items in their order (queries, ranks).
        ideal: of the items in the best order (queries, any number of ranks).
        depth: ranks that count.
    """
    weights = 1.0 / np.log2(np.arange(2, depth + 2))
    reached, possible = (each[:, :depth] @ weights[: each.shape[1]] for each in (gains, ideal))
    return safe_divide(reached, possible)


def list_overlap(retrieved: Array, others: Array) -> QueryScores:
    """Return the share of items that two lists (queries, ranks) have in common, as the mean over all depths.

    Fagin, Kumar and Sivakumar, "Comparing top k lists" (2003): 1 for the same order, 0 where they share nothing; top
    ranks weigh most.
    """
    depths = range(1, retrieved.shape[1] + 1)
    shares = [is_relevant(retrieved[:, :depth], others[:, :depth]).mean(axis=1) for depth in depths]
    return np.mean(shares, axis=0)


ARTICLE = re.compile(r"\b(?:a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


@lru_cache(maxsize=1 << 16)
def normalized_words(text: str) -> tuple[str, ...]:
    """Return the words that count: lower case, without punctuation (`U.S.` is `us`), then without articles."""
    return tuple(ARTICLE.sub(" ", text.lower().translate(PUNCTUATION)).split())


def word_f1(answer: str, true: str) -> float:
    """Return the harmonic mean of the shares of either text's words that the other has too, counting repetitions."""
    ours, theirs = normalized_words(answer), normalized_words(true)
    if not ours or not theirs:
        return float(ours == theirs)
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2.0 * shared / (len(ours) + len(theirs))


def match_answers(answer: str, accepted: Sequence[str]) -> tuple[bool, float]:
    """Return whether the answer is an accepted one, and its best F1; "" is no answer, right where none is accepted."""
    # An accepted answer of articles and punctuation alone has no words left to compare.
    texts = [text for text in accepted if normalized_words(text)] or [""]
    ours = normalized_words(answer)
    return any(ours == normalized_words(text) for text in texts), max(word_f1(answer, text) for text in texts)
