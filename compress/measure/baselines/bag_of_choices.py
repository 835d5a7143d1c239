"""A bag of words for multiple choice: each pair of question and choice is classified as right or wrong."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from compress.measure.baselines.bag_of_words import bag_of_words
from compress.model_info import TaskInfo
from compress.tasks.base import Row
from compress.tasks.kinds.multiple_choice import choice_probabilities

LABELS = ("wrong", "right")


def bag_of_choices(
    train: Sequence[Row], test: Sequence[Row], task: TaskInfo, seed: int = 0, documents: Sequence[Row] = ()
) -> NDArray[Any]:
    """Return the probabilities of the choices: the normalised probabilities that each one is right."""
    train_pairs, test_pairs = Pairs(train), Pairs(test)
    pair_task = task.model_copy(update={"kind": "classification", "labels": LABELS})
    right = bag_of_words(train_pairs, test_pairs, pair_task, seed)[:, 1].astype(np.float64)
    return choice_probabilities(np.split(np.log(np.maximum(right, np.finfo(np.float32).tiny)), test_pairs.starts[1:]))


class Pairs(Sequence[Row]):
    """Each question with each of its choices as a pair of texts, created lazily."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._ends = list(accumulate(len(row["choices"]) for row in rows))
        self.starts = [0, *self._ends[:-1]]
        """Number of the first pair of each row."""

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [self[choice] for choice in range(*index.indices(len(self)))]
        number = bisect_right(self._ends, index)
        row, choice = self._rows[number], index - self.starts[number]
        return {"text": row["text"], "text_pair": row["choices"][choice], "label": int(choice == row["label"])}
