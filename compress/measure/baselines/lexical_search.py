"""BM25 search: the documents that share most words with a query, rare words counting more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from compress.data.bm25 import Bm25
from compress.model_info import TaskInfo
from compress.tasks.base import Row
from compress.tasks.kinds.retrieval import MAX_RETRIEVED, retrieved_documents


def lexical_search(
    train: Sequence[Row], test: Sequence[Row], task: TaskInfo, seed: int = 0, documents: Sequence[Row] = ()
) -> NDArray[Any]:
    """Return the hundred best documents of each row of test, without training."""
    index = Bm25(row["document"] for row in documents)
    return retrieved_documents(*index.top([row["query"] for row in test], MAX_RETRIEVED))
