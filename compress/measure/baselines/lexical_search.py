"""What words alone find: the documents that share most with a query, rare words counting more (BM25)."""

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
    """The hundred best documents of each row of test. Nothing is learnt from train."""
    index = Bm25(row["document"] for row in documents)
    return retrieved_documents(*index.top([row["query"] for row in test], MAX_RETRIEVED))
