"""A bag of words: a linear model on words and word pairs, trained in seconds.

A model that costs milliseconds a text should be clearly better; a report without it hides how easy a task is. Words are
hashed (Weinberger et al., 2009), so there is no dictionary that grows with the data, and at most a hundred thousand
training rows are used, chosen by seed: memory stays flat whatever the data. For multiple choice each pair of question
and choice is classified as right or wrong.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress.environment import require
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import LazyRows, Row
from compress.tasks.kinds.multiple_choice import choice_probabilities

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
PAIR = ("text", "text_pair")

Fitted = Callable[["csr_matrix"], NDArray[Any]]
Fit = Callable[["csr_matrix", NDArray[Any], int, int], Fitted]
"""(features, labels, classes, seed) -> a function from features to predictions."""


def bag_of_words(
    fit: Fit,
    train_rows: Sequence[Row],
    test_rows: Sequence[Row],
    task: TaskInfo,
    seed: int = 0,
    documents: Sequence[Row] = (),
) -> NDArray[Any]:
    """Return predictions on ``test_rows`` from a linear model that ``fit`` makes of ``train_rows``.

    The second text of a pair has features of its own, as have the words that both texts share. Two numbers say how
    similar the texts are: the share of common words, and their cosine by tf-idf, in which rare words count more.
    """
    require("sklearn", "train")
    from sklearn.feature_extraction.text import TfidfTransformer

    rows = sample_rows(train_rows, seed, MAX_ROWS)
    weigh, similar = TfidfTransformer(sublinear_tf=True), _pair_similarity(rows)
    features = _joined(weigh.fit_transform(_hashed(rows, words)), similar(rows))
    labels = np.asarray([row["label"] for row in rows])
    predict = fit(features, labels, len(task.labels), seed)
    parts = (
        _joined(weigh.transform(_hashed(part, words)), similar(part)) for part in row_parts(test_rows, PREDICT_ROWS)
    )
    return np.concatenate([predict(part) for part in parts])


def words(row: Row) -> list[str]:
    """Return the features of a row: words and word pairs of each text, and the words that both share."""
    first, second = (_words(row, name) for name in PAIR)
    grams = _grams(first)
    if second:
        grams += [f"2 {gram}" for gram in _grams(second)]
        grams += [f"both {word}" for word in sorted(set(first) & set(second))]
    return grams


def overlap(row: Row) -> float:
    """Return the share of all distinct words of a pair that both texts have; 0 for a single text."""
    first, second = (set(_words(row, name)) for name in PAIR)
    return len(first & second) / len(first | second) if second else 0.0


def _words(row: Row, name: str) -> list[str]:
    return WORD.findall((row.get(name) or "")[:MAX_CHARACTERS].lower())


def _grams(words: list[str]) -> list[str]:
    return [*words, *(f"{one} {other}" for one, other in pairwise(words))]


def sample_rows(rows: Sequence[Row], seed: int, most: int) -> list[Row]:
    """Return all rows, or ``most`` of them by seed, in their order."""
    if len(rows) <= most:
        return list(rows)
    chosen = np.sort(np.random.default_rng(seed).choice(len(rows), most, replace=False))
    return [rows[int(index)] for index in chosen]


def row_parts(rows: Sequence[Row], size: int) -> Iterator[list[Row]]:
    """Yield the rows in parts of ``size``."""
    for start in range(0, len(rows), size):
        yield [rows[index] for index in range(start, min(start + size, len(rows)))]


def _pair_similarity(train: Sequence[Row]) -> Callable[[Sequence[Row]], csr_matrix]:
    """Return a function of rows: how similar the texts of each are (rows, 2), 0 for single texts.

    The first number is the overlap, the second the cosine by tf-idf, with weights counted over the texts of ``train``.
    """
    from scipy.sparse import csr_matrix, vstack
    from sklearn.feature_extraction.text import TfidfTransformer

    if not any(row.get("text_pair") for row in train):
        return lambda rows: csr_matrix((len(rows), 2))
    weigh = TfidfTransformer(sublinear_tf=True)
    weigh.fit(vstack([_hashed(train, partial(_words, name=name)) for name in PAIR]))

    def similarity(rows: Sequence[Row]) -> csr_matrix:
        first, second = (weigh.transform(_hashed(rows, partial(_words, name=name))) for name in PAIR)
        return csr_matrix(np.column_stack([[overlap(row) for row in rows], first.multiply(second).sum(axis=1)]))

    return similarity


def _joined(*features: csr_matrix) -> csr_matrix:
    from scipy.sparse import hstack

    return hstack(features, format="csr")


def _hashed(rows: Sequence[Row], analyze: Callable[[Row], list[str]]) -> csr_matrix:
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(n_features=FEATURES, analyzer=analyze, alternate_sign=False, norm=None).transform(rows)


def _fit_classes(features: csr_matrix, labels: NDArray[Any], classes: int, seed: int) -> Fitted:
    """Logistic regression; classes without a row in the sample have probability zero.

    Where there is nothing to learn from, one class or no word at all, the probabilities are the shares of the classes.
    """
    from sklearn.linear_model import LogisticRegression

    seen = np.unique(labels)
    # A hash value without a word has weight zero: leaving it out changes only the time.
    used = np.unique(features.indices)
    if len(seen) == 1 or not len(used):
        shares = (np.bincount(labels, minlength=classes) / len(labels)).astype(np.float32)
        return lambda inputs: np.tile(shares, (inputs.shape[0], 1))
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


classes_by_words = partial(bag_of_words, _fit_classes)
"""Probabilities of classes that exclude one another."""
labels_by_words = partial(bag_of_words, _fit_each_label)
"""Probabilities of classes, each by itself."""
scores_by_words = partial(bag_of_words, _fit_scores)
"""Numbers."""


LABELS = ("wrong", "right")


def bag_of_choices(
    train: Sequence[Row], test: Sequence[Row], task: TaskInfo, seed: int = 0, documents: Sequence[Row] = ()
) -> NDArray[Any]:
    """Return the probabilities of the choices: the normalised probabilities that each one is right."""
    train_pairs, test_pairs = Pairs(train), Pairs(test)
    pair_task = task.model_copy(update={"labels": LABELS})
    right = classes_by_words(train_pairs, test_pairs, pair_task, seed)[:, 1].astype(np.float64)
    scores = np.log(np.maximum(right, np.finfo(np.float32).tiny))
    return choice_probabilities(np.split(scores, test_pairs.ends[:-1]))


class Pairs(LazyRows):
    """Each question with each of its choices as a pair of texts, created lazily."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self.ends = list(accumulate(len(row["choices"]) for row in rows))
        """One more than the number of each row's last pair."""

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def row(self, index: int) -> Row:
        """Return one pair."""
        number = bisect_right(self.ends, index)
        row = self._rows[number]
        choice = index - self.ends[number] + len(row["choices"])
        return {"text": row["text"], "text_pair": row["choices"][choice], "label": int(choice == row["label"])}
