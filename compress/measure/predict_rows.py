"""Predictions of a model on rows: their examples are run in batches, and the decoded outputs put together."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.data.encode import EncodedRows, batches_by_length, encode_rows
from compress.data.tokenizer import TextTokenizer
from compress.model_folder.model_info import TaskInfo
from compress.tasks import kind_of
from compress.tasks.base import Arrays, Row

Forward = Callable[[Arrays], Arrays]
"""A batch's outputs, such as ``Predictor.predict``."""


@dataclass(frozen=True)
class EmbeddedDocuments:
    """The documents to search, embedded by one model."""

    embeddings: NDArray[Any]
    truncated: float
    """Share of documents that are longer than the model's maximum."""


def predict_rows(
    run: Forward,
    rows: Sequence[Row],
    task: TaskInfo,
    tokens: TextTokenizer,
    batch: int,
    searched: EmbeddedDocuments | None = None,
) -> tuple[NDArray[Any], EncodedRows]:
    """Return one prediction a row, and the encoded rows; ``searched`` are the documents of kinds that search."""
    encoded = encode_rows(rows, task, tokens)
    predictions = predict_encoded(run, encoded, rows, task, batch)
    return predictions if searched is None else kind_of(task).search(predictions, searched.embeddings, task), encoded


def embed_documents(
    run: Forward, documents: Iterable[Row], task: TaskInfo, tokens: TextTokenizer, batch: int
) -> EmbeddedDocuments | None:
    """Return the documents of a role, each embedded once; None for kinds that do not search."""
    if not kind_of(task).searches:
        return None
    encoded = encode_rows(documents, task, tokens)
    return EmbeddedDocuments(embed_encoded(run, encoded, task, batch), encoded.truncated)


def predict_encoded(
    run: Forward, encoded: EncodedRows, rows: Sequence[Row], task: TaskInfo, batch: int
) -> NDArray[Any]:
    """Return one prediction for each of ``rows``, whose examples are ``encoded``."""
    return kind_of(task).predictions(decode_examples(run, encoded, task, batch), encoded.counts.tolist(), rows, task)


def embed_encoded(run: Forward, documents: EncodedRows, task: TaskInfo, batch: int) -> NDArray[Any]:
    """Return the embedding of each document (documents, D), without a copy."""
    results: NDArray[Any] = np.empty(0)  # encoded rows always have an example
    for indices, outputs in _decoded_batches(run, documents, task, batch):
        if not len(results):
            results = np.empty((len(documents), *outputs[0].shape), outputs[0].dtype)
        results[indices] = outputs
    return results


def decode_examples(run: Forward, encoded: EncodedRows, task: TaskInfo, batch: int) -> list[NDArray[Any]]:
    """Return the decoded output of each example in order, run in batches of ``batch`` of similar length.

    Where outputs depend on the batch, the batches are still the same for every model: they follow from the lengths.
    """
    decoded = {
        index: output
        for indices, outputs in _decoded_batches(run, encoded, task, batch)
        for index, output in zip(indices.tolist(), outputs, strict=True)
    }
    return [decoded[index] for index in range(len(encoded))]


def _decoded_batches(
    run: Forward, encoded: EncodedRows, task: TaskInfo, batch: int
) -> Iterator[tuple[NDArray[np.int64], list[NDArray[Any]]]]:
    """Yield the examples of each batch and their decoded outputs."""
    for indices in batches_by_length(encoded.lengths, batch):
        arrays = encoded.batch(indices)
        yield indices, kind_of(task).decode(run(arrays), arrays, task)
