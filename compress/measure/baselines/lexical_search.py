"""BM25 for retrieval and ranking: what shares most words with a query, rare words counting more."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.data.bm25 import Bm25
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Row
from compress.tasks.kinds.ranking import pad_scores
from compress.tasks.kinds.retrieval import MAX_RETRIEVED, retrieved_documents


def lexical_search(
    train: Sequence[Row], test: Sequence[Row], task: TaskInfo, seed: int = 0, documents: Sequence[Row] = ()
) -> NDArray[Any]:
    """Return the hundred best documents of each row of test, without training."""
    index = Bm25(row["document"] for row in documents)
    return retrieved_documents(*index.top([row["query"] for row in test], MAX_RETRIEVED))


CHANCE = 1e-4
"""Random addition to a score: enough to decide between equal scores, too little to reorder others."""


def lexical_ranking(
    train: Sequence[Row], test: Sequence[Row], task: TaskInfo, seed: int = 0, documents: Sequence[Row] = ()
) -> NDArray[Any]:
    """Return BM25 scores; how rare words are is counted over the candidates of all questions of test.

    Many candidates share no word with their question: these are ordered at random, by seed, since equal scores would
    count as the worst order, and a baseline that is too low flatters the models.
    """
    index = Bm25(candidate for row in test for candidate in row["candidates"])
    queries = [row["text"] for row in test for _ in row["candidates"]]
    scores = index.pairs(queries, np.arange(len(index))) + CHANCE * np.random.default_rng(seed).random(len(index))
    ends = np.cumsum([len(row["candidates"]) for row in test])
    return pad_scores(np.split(scores, ends[:-1]))
