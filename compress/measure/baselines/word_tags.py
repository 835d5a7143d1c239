"""A bag of words for tags: a linear model of each word and its two neighbours on either side, trained in seconds.

Words are hashed, each with its distance, as are the pairs that the word makes with its next neighbours. That is what
taggers read before neural networks, without the tags of the words before (Ratnaparkhi, "A Maximum Entropy Model for
Part-Of-Speech Tagging", 1996). A logistic regression for each tag is trained by stochastic gradients on a bounded
number of words: time and memory stay flat whatever the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress.environment import require
from compress.measure.baselines.bag_of_words import row_parts, sample_rows
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Row
from compress.tasks.kinds.token_classification import WORD, TokenClassification

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import SGDClassifier

MAX_ROWS = 10_000
"""Training rows used, at most."""
MAX_PRODUCTS = 5_000_000
"""Words × tags of one epoch, at most: fewer rows are used where there are many tags."""
FEATURES = 1 << 17
"""Size of the hash table."""
NEIGHBOURS = 2
"""Words on either side that are read."""
STRENGTH = 3e-6
"""Weight of the squared norm."""
EPOCHS = 10
PREDICT_ROWS = 1_024


def word_tags(
    train_rows: Sequence[Row], test_rows: Sequence[Row], task: TaskInfo, seed: int = 0, documents: Sequence[Row] = ()
) -> NDArray[Any]:
    """Return predictions on ``test_rows``: each word's most probable tag."""
    require("sklearn", "train")
    rows = _sample(train_rows, len(task.labels), seed)
    tags = np.concatenate([np.asarray(row["label"]) for row in rows])
    # With a single tag there is nothing to fit.
    model = _fit(_hashed(rows), tags, seed) if len(np.unique(tags)) > 1 else None
    decided: list[NDArray[Any]] = []
    for part in row_parts(test_rows, PREDICT_ROWS):
        total = sum(len(row["words"]) for row in part)
        probabilities = model.predict_proba(_hashed(part)) if model else np.ones((total, 1))
        best, classes = probabilities.argmax(axis=1), model.classes_ if model else tags[:1]
        words = np.zeros(total, WORD)
        words["word"] = np.concatenate([np.arange(len(row["words"])) for row in part])
        words["tag"], words["probability"] = classes[best], probabilities.max(axis=1)
        decided += np.split(words, np.cumsum([len(row["words"]) for row in part])[:-1])
    return TokenClassification().predictions(decided, [1] * len(decided), test_rows, task)


def _fit(features: csr_matrix, tags: NDArray[Any], seed: int) -> SGDClassifier:
    from sklearn.linear_model import SGDClassifier

    options: dict[str, Any] = {"alpha": STRENGTH, "max_iter": EPOCHS, "tol": None, "average": True}
    return SGDClassifier(loss="log_loss", random_state=seed, **options).fit(features, tags)


def _sample(rows: Sequence[Row], tags: int, seed: int) -> list[Row]:
    """Return the rows to train on: a sample by seed of as many as the limits allow."""
    chosen = sample_rows(rows, seed, MAX_ROWS)
    length = sum(len(row["words"]) for row in chosen) / len(chosen)
    return sample_rows(chosen, seed, max(1, int(MAX_PRODUCTS / (length * tags))))


def features(words: Sequence[str], index: int) -> Iterator[str]:
    """Yield what is read of one word of a text: itself and its neighbours by their distance, and two pairs."""
    near = {step: _word(words, index + step) for step in range(-NEIGHBOURS, NEIGHBOURS + 1)}
    yield from (f"{step} {word}" for step, word in near.items())
    yield f"before {near[-1]} {near[0]}"
    yield f"after {near[0]} {near[1]}"


def _word(words: Sequence[str], index: int) -> str:
    """Return a word in lower case; nothing before the first and after the last one."""
    return words[index].lower() if 0 <= index < len(words) else ""


def _hashed(rows: Sequence[Row]) -> csr_matrix:
    """Return the features of all words of ``rows`` (words, FEATURES)."""
    from sklearn.feature_extraction import FeatureHasher

    hasher = FeatureHasher(FEATURES, input_type="string", alternate_sign=False, dtype=np.float32)
    return hasher.transform(features(row["words"], index) for row in rows for index in range(len(row["words"])))
