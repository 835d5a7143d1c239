"""A bag of words: a linear model on words and word pairs, trained in seconds.

A model that costs milliseconds a text should be clearly better; a report without it hides how easy a task is. Words are
hashed (Weinberger et al., 2009), so there is no dictionary that grows with the data, and at most a hundred
thousand training rows are used, chosen by seed: memory stays flat whatever the data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress.environment import require
from compress.model_info import TaskInfo
from compress.tasks import kind_of
from compress.tasks.base import Row

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

MAX_ROWS = 100_000
"""Training rows used, at most."""
MAX_CHARACTERS = 4_000
"""Used of each text, at most."""
FEATURES = 1 << 18
"""Size of the hash table of words."""
PREDICT_ROWS = 4_096
STRENGTH = 4.0
"""Inverse regularisation of the classifiers: with unit-length rows of tf-idf a little more than 1 fits better."""

WORD = re.compile(r"\w+")

Fitted = Callable[["csr_matrix"], NDArray[Any]]


def bag_of_words(
    train_rows: Sequence[Row], test_rows: Sequence[Row], task: TaskInfo, seed: int = 0, documents: Sequence[Row] = ()
) -> NDArray[Any]:
    """Return predictions on ``test_rows`` from a linear model trained on ``train_rows``.

    The second text of a pair has features of its own, as have the words that both texts share and their proportion.
    """
    require("sklearn", "train")
    from sklearn.feature_extraction.text import TfidfTransformer

    rows = sample_rows(train_rows, seed, MAX_ROWS)
    weigh = TfidfTransformer(sublinear_tf=True)
    features = _with_overlap(weigh.fit_transform(_hashed(rows)), rows)
    labels = np.asarray([row["label"] for row in rows])
    predict = FITS[kind_of(task).problem](features, labels, len(task.labels), seed)
    parts = [predict(_with_overlap(weigh.transform(_hashed(part)), part)) for part in _parts(test_rows)]
    return np.concatenate(parts)


def words(row: Row) -> list[str]:
    """Return the features of a row: words and word pairs of each text, and the words that both share."""
    first, second = (WORD.findall((row.get(name) or "")[:MAX_CHARACTERS].lower()) for name in ("text", "text_pair"))
    grams = _grams(first)
    if second:
        grams += [f"2 {gram}" for gram in _grams(second)]
        grams += [f"both {word}" for word in sorted(set(first) & set(second))]
    return grams


def overlap(row: Row) -> float:
    """Return the share of all distinct words of a pair that both texts have; 0 for a single text."""
    first, second = (set(WORD.findall((row.get(name) or "").lower())) for name in ("text", "text_pair"))
    return len(first & second) / len(first | second) if second else 0.0


def _grams(words: list[str]) -> list[str]:
    return [*words, *(f"{one} {other}" for one, other in pairwise(words))]


def sample_rows(rows: Sequence[Row], seed: int, most: int) -> list[Row]:
    """Return all rows, or ``most`` of them by seed, in their order."""
    if len(rows) <= most:
        return list(rows)
    chosen = np.sort(np.random.default_rng(seed).choice(len(rows), most, replace=False))
    return [rows[int(index)] for index in chosen]


def _parts(rows: Sequence[Row]) -> Iterator[list[Row]]:
    for start in range(0, len(rows), PREDICT_ROWS):
        yield [rows[index] for index in range(start, min(start + PREDICT_ROWS, len(rows)))]


def _hashed(rows: Sequence[Row]) -> csr_matrix:
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(n_features=FEATURES, analyzer=words, alternate_sign=False, norm=None).transform(rows)


def _with_overlap(features: csr_matrix, rows: Sequence[Row]) -> csr_matrix:
    from scipy.sparse import csr_matrix, hstack

    return hstack([features, csr_matrix([[overlap(row)] for row in rows])], format="csr")


def _fit_classes(features: csr_matrix, labels: NDArray[Any], classes: int, seed: int) -> Fitted:
    """Logistic regression; classes without a row in the sample have probability zero."""
    from sklearn.linear_model import LogisticRegression

    seen = np.unique(labels)
    if len(seen) == 1:  # the sample has only one class
        return lambda inputs: np.tile(np.eye(classes, dtype=np.float32)[int(seen[0])], (inputs.shape[0], 1))
    # A hash value without a word has weight zero: leaving it out changes only the time.
    used = np.unique(features.indices)
    model = LogisticRegression(C=STRENGTH, max_iter=1000, random_state=seed).fit(features[:, used], labels)

    def predict(inputs: csr_matrix) -> NDArray[Any]:
        probabilities = np.zeros((inputs.shape[0], classes), np.float32)
        probabilities[:, seen] = model.predict_proba(inputs[:, used])
        return probabilities

    return predict


def _fit_each_label(features: csr_matrix, labels: NDArray[Any], classes: int, seed: int) -> Fitted:
    """One logistic regression a label."""
    fits = [_fit_classes(features, labels[:, index].astype(int), 2, seed) for index in range(classes)]
    return lambda inputs: np.stack([fit(inputs)[:, 1] for fit in fits], axis=1)


def _fit_scores(features: csr_matrix, labels: NDArray[Any], classes: int, seed: int) -> Fitted:
    """Ridge regression."""
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=1.0, random_state=seed).fit(features, labels)
    return lambda inputs: np.asarray(model.predict(inputs), np.float32)


FITS: dict[str, Callable[[csr_matrix, NDArray[Any], int, int], Fitted]] = {
    "single_label_classification": _fit_classes,
    "multi_label_classification": _fit_each_label,
    "regression": _fit_scores,
    "similarity": _fit_scores,
}
"""By the kind's `problem`."""
