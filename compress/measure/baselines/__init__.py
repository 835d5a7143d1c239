"""Simple baselines: a model that costs milliseconds a text should be clearly better.

Every task kind has one; a new one is a file with one function, and its line in `BASELINES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from numpy.typing import NDArray

from compress.errors import UsageError, nearest
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Row

Predict = Callable[[Sequence[Row], Sequence[Row], TaskInfo, int, Sequence[Row]], NDArray[Any]]
"""(train rows, test rows, task, seed, documents to search) -> predictions in the form of the task's kind."""


@dataclass(frozen=True)
class Baseline:
    """One baseline."""

    name: str
    """Its name in reports: `a bag of words`."""
    path: str
    """`module:function` of a `Predict`."""


BAG_OF_WORDS = Baseline("a bag of words", "compress.measure.baselines.bag_of_words:bag_of_words")
WORD_TAGS = Baseline("a bag of words around each word", "compress.measure.baselines.word_tags:word_tags")

BASELINES: Mapping[str, Baseline] = {
    "classification": BAG_OF_WORDS,
    "multi_label": BAG_OF_WORDS,
    "regression": BAG_OF_WORDS,
    "question_answering": Baseline("a sliding window", "compress.measure.baselines.sliding_window:sliding_window"),
    "multiple_choice": Baseline("a bag of words", "compress.measure.baselines.bag_of_words:bag_of_choices"),
    "ranking": Baseline("BM25", "compress.measure.baselines.lexical_search:lexical_ranking"),
    "retrieval": Baseline("BM25", "compress.measure.baselines.lexical_search:lexical_search"),
    "similarity": BAG_OF_WORDS,
    "token_classification": WORD_TAGS,
}


def baseline_for(kind: str) -> Baseline:
    """Return the baseline of a kind of task."""
    if kind not in BASELINES:
        raise UsageError(f"there is no baseline for the kind '{kind}'{nearest(kind, BASELINES)}.")
    return BASELINES[kind]


def baseline_predictions(
    train: Sequence[Row], test: Sequence[Row], task: TaskInfo, seed: int = 0, documents: Sequence[Row] = ()
) -> NDArray[Any]:
    """Return the predictions of the kind's baseline on ``test``."""
    predict: Predict = resolve_name(baseline_for(task.kind).path)
    return predict(train, test, task, seed, documents)
