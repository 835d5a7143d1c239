"""What something simple reaches at a task: a model that costs milliseconds a text should be clearly above it.

Every kind has its own; adding one is a file with one function, and its line in `BASELINES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from numpy.typing import NDArray

from compress.errors import UsageError, nearest
from compress.model_info import TaskInfo
from compress.tasks.base import Row

Answer = Callable[[Sequence[Row], Sequence[Row], TaskInfo, int, Sequence[Row]], NDArray[Any]]
"""(train rows, test rows, task, seed, documents that are searched) -> answers in the form of the task's kind."""


@dataclass(frozen=True)
class Baseline:
    """A simple way to answer."""

    name: str
    """As reports call it: `a bag of words`."""
    path: str
    """`module:function` of an `Answer`."""


BAG_OF_WORDS = Baseline("a bag of words", "compress.measure.baselines.bag_of_words:bag_of_words")
WORD_TAGS = Baseline("each word's most frequent tag", "compress.measure.baselines.word_tags:word_tags")

BASELINES: Mapping[str, Baseline] = {
    "classification": BAG_OF_WORDS,
    "multi_label": BAG_OF_WORDS,
    "regression": BAG_OF_WORDS,
    "question_answering": Baseline("a sliding window", "compress.measure.baselines.sliding_window:sliding_window"),
    "multiple_choice": Baseline("a bag of words", "compress.measure.baselines.bag_of_choices:bag_of_choices"),
    "ranking": Baseline("BM25", "compress.measure.baselines.lexical_ranking:lexical_ranking"),
    "retrieval": Baseline("BM25", "compress.measure.baselines.lexical_search:lexical_search"),
    "similarity": BAG_OF_WORDS,
    "token_classification": WORD_TAGS,
}


def baseline_for(kind: str) -> Baseline:
    """The simple way to answer a kind of task."""
    if kind not in BASELINES:
        raise UsageError(f"nothing simple is known that answers the kind '{kind}'{nearest(kind, BASELINES)}.")
    return BASELINES[kind]


def baseline_predictions(
    train: Sequence[Row], test: Sequence[Row], task: TaskInfo, seed: int = 0, documents: Sequence[Row] = ()
) -> NDArray[Any]:
    """What the floor of the task's kind answers to ``test``."""
    answer: Answer = resolve_name(baseline_for(task.kind).path)
    return answer(train, test, task, seed, documents)
