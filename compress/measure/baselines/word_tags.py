"""What a list of words reaches: each word gets the tag that it has most often in train, and O where it has none."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.model_info import TaskInfo
from compress.tasks.base import Row
from compress.tasks.kinds.token_classification import WORD, TokenClassification

MOST_ROWS = 100_000
"""Training rows used, at most, so that memory stays flat whatever the data."""
ROOM = 0


def word_tags(
    train_rows: Sequence[Row], test_rows: Sequence[Row], task: TaskInfo, seed: int = 0, documents: Sequence[Row] = ()
) -> NDArray[Any]:
    """Answers on ``test_rows``; the probability of a tag is its share among the word's, 0 for words never seen."""
    known = _most_frequent(train_rows, seed)
    decided = [_looked_up(row["words"], known) for row in test_rows]
    return TokenClassification().predictions(decided, [1] * len(decided), test_rows, task)


def _most_frequent(rows: Sequence[Row], seed: int) -> dict[str, tuple[int, float]]:
    """Each word's most frequent tag and its share; of equally frequent ones the first in the order of labels."""
    tags: dict[str, Counter[int]] = defaultdict(Counter)
    for index in _sample(len(rows), seed):
        row = rows[int(index)]
        for word, tag in zip(row["words"], row["label"], strict=True):
            tags[word][tag] += 1
    found = {}
    for word, counts in tags.items():
        tag, often = max(counts.items(), key=lambda item: (item[1], -item[0]))
        found[word] = (tag, often / counts.total())
    return found


def _looked_up(words: Sequence[str], known: dict[str, tuple[int, float]]) -> NDArray[Any]:
    """The words that are known, in the form of what a model says of them."""
    return np.array([(place, *known[word], ROOM) for place, word in enumerate(words) if word in known], WORD)


def _sample(rows: int, seed: int) -> NDArray[np.intp]:
    if rows <= MOST_ROWS:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, MOST_ROWS, replace=False))
