"""What a model answers to rows: batches of their examples run, and what is worth keeping of each put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.data.encode import EncodedRows, batches_by_length, encode_rows
from compress.data.tokenizer import TextTokenizer
from compress.model_info import TaskInfo
from compress.tasks import kind_of
from compress.tasks.base import Arrays, Row

Run = Callable[[Arrays], Arrays]
"""A batch's outputs, such as ``Predictor.predict``."""


@dataclass(frozen=True)
class EmbeddedDocuments:
    """The documents among which answers are found, as one model embeds them."""

    embeddings: NDArray[Any]
    truncated: float
    """Share of documents of which the model does not see everything."""


def predict_rows(
    run: Run,
    rows: Sequence[Row],
    task: TaskInfo,
    tokens: TextTokenizer,
    batch: int,
    searched: EmbeddedDocuments | None = None,
) -> tuple[NDArray[Any], EncodedRows]:
    """One answer a row, and the rows as the model read them; ``searched`` are what kinds that search find them in."""
    encoded = encode_rows(rows, task, tokens)
    found = predict_encoded(run, encoded, rows, task, batch)
    return found if searched is None else kind_of(task).search(found, searched.embeddings, task), encoded


def embed_documents(
    run: Run, documents: Iterable[Row], task: TaskInfo, tokens: TextTokenizer, batch: int
) -> EmbeddedDocuments | None:
    """The documents of a role, each embedded once for whatever is asked of them; None for kinds that do not search."""
    if not kind_of(task).searches:
        return None
    encoded = encode_rows(documents, task, tokens)
    return EmbeddedDocuments(embed_encoded(run, encoded, task, batch), encoded.truncated)


def predict_encoded(run: Run, encoded: EncodedRows, rows: Sequence[Row], task: TaskInfo, batch: int) -> NDArray[Any]:
    """One answer to each of ``rows``, of which ``encoded`` are the examples."""
    return kind_of(task).predictions(decode_examples(run, encoded, task, batch), encoded.counts.tolist(), rows, task)


def embed_encoded(run: Run, documents: EncodedRows, task: TaskInfo, batch: int) -> NDArray[Any]:
    """The embedding of each document (documents, D), held only once."""
    found: NDArray[Any] | None = None
    for indices, some in _decided_batches(run, documents, task, batch):
        if found is None:
            found = np.empty((len(documents), *some[0].shape), some[0].dtype)
        found[indices] = some
    assert found is not None  # there are no encoded rows without an example
    return found


def decode_examples(run: Run, encoded: EncodedRows, task: TaskInfo, batch: int) -> list[NDArray[Any]]:
    """What is kept of each example, in their own order, run in batches of ``batch`` of similar length.

    Where a batch is asked for because the answers depend on it, the batches are still the same for every model: they
    follow from the lengths alone.
    """
    kept: list[NDArray[Any]] = [np.empty(0)] * len(encoded)
    for indices, some in _decided_batches(run, encoded, task, batch):
        for index, found in zip(indices, some, strict=True):
            kept[index] = found
    return kept


def _decided_batches(
    run: Run, encoded: EncodedRows, task: TaskInfo, batch: int
) -> Iterator[tuple[NDArray[np.int64], list[NDArray[Any]]]]:
    """Which examples each batch has, and what is kept of them."""
    kind = kind_of(task)
    for indices in batches_by_length(encoded.lengths, batch):
        arrays = encoded.batch(indices)
        yield indices, kind.decode(run(arrays), arrays, task)
