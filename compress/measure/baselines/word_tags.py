"""Most frequent tag: each word gets the tag that it has most often in train, and O if it is unknown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.measure.baselines.bag_of_words import MAX_ROWS, sample_rows
from compress.model_info import TaskInfo
from compress.tasks.base import Row
from compress.tasks.kinds.token_classification import WORD, TokenClassification

NO_MARGIN = 0


def word_tags(
    train_rows: Sequence[Row], test_rows: Sequence[Row], task: TaskInfo, seed: int = 0, documents: Sequence[Row] = ()
) -> NDArray[Any]:
    """Return predictions on ``test_rows``; a tag's probability is its share among the word's, 0 for unknown words."""
    known = _most_frequent(train_rows, seed)
    decided = [
        np.array([(index, *known[word], NO_MARGIN) for index, word in enumerate(row["words"]) if word in known], WORD)
        for row in test_rows
    ]
    return TokenClassification().predictions(decided, [1] * len(decided), test_rows, task)


def _most_frequent(rows: Sequence[Row], seed: int) -> dict[str, tuple[int, float]]:
    """Return each word's most frequent tag and its share; of equally frequent ones the first label."""
    tags: dict[str, Counter[int]] = defaultdict(Counter)
    for row in sample_rows(rows, seed, MAX_ROWS):
        for word, tag in zip(row["words"], row["label"], strict=True):
            tags[word][tag] += 1
    frequent = {word: max(counts, key=lambda tag: (counts[tag], -tag)) for word, counts in tags.items()}
    return {word: (tag, tags[word][tag] / tags[word].total()) for word, tag in frequent.items()}
