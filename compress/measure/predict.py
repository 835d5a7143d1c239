"""What a model answers to rows: batches of their examples run, and what is worth keeping of each put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.data.batches import Encoded, by_length, encode_rows
from compress.data.tokens import Tokens
from compress.folder import TaskInfo
from compress.tasks import kind_of
from compress.tasks.kind import Arrays, Row

Run = Callable[[Arrays], Arrays]
"""A batch's outputs, such as ``Predictor.predict``."""


def answer_rows(
    run: Run, rows: Sequence[Row], task: TaskInfo, tokens: Tokens, batch: int, documents: Iterable[Row] = ()
) -> tuple[NDArray[Any], Encoded]:
    """One answer a row, and the rows as the model read them; ``documents`` are those among which kinds search."""
    encoded = encode_rows(rows, task, tokens)
    found = answers(run, encoded, rows, task, batch)
    if kind_of(task).searches:
        found = search(run, found, encode_rows(documents, task, tokens), task, batch)
    return found, encoded


def answers(run: Run, encoded: Encoded, rows: Sequence[Row], task: TaskInfo, batch: int) -> NDArray[Any]:
    """One answer to each of ``rows``, of which ``encoded`` are the examples."""
    return kind_of(task).answers(decided(run, encoded, task, batch), encoded.counts.tolist(), rows, task)


def search(run: Run, queries: NDArray[Any], documents: Encoded, task: TaskInfo, batch: int) -> NDArray[Any]:
    """What each query found among the documents, each of which is embedded once."""
    return kind_of(task).search(queries, np.stack(decided(run, documents, task, batch)), task)


def decided(run: Run, encoded: Encoded, task: TaskInfo, batch: int) -> list[NDArray[Any]]:
    """What is kept of each example, in their own order, run in batches of ``batch`` of similar length.

    Where a batch is asked for because the answers depend on it, the batches are still the same for every model: they
    follow from the lengths alone.
    """
    kind = kind_of(task)
    kept: list[NDArray[Any]] = [np.empty(0)] * len(encoded)
    for indices in by_length(encoded.lengths, batch):
        arrays = encoded.batch(indices)
        for index, found in zip(indices, kind.decide(run(arrays), arrays, task), strict=True):
            kept[index] = found
    return kept
