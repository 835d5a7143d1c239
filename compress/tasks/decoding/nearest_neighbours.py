"""Exact nearest neighbours: the documents with the largest inner products, block by block.

All products of a block of queries and a block of documents are computed; only those that may still be among the best
are sorted. Memory is one block of products, whatever the number of queries and documents, and time grows with the
product of the two. An approximate index would be faster on many millions of documents, and answer some queries wrongly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

QUERIES, DOCUMENTS = 512, 16_384
"""Size of a block of products: 32 MB."""

Embeddings = NDArray[np.float32]
Indices = NDArray[np.int32]


def nearest_documents(queries: Embeddings, documents: Embeddings, count: int) -> tuple[Indices, Embeddings]:
    """Return the ``count`` nearest of ``documents`` (m, D) to each of ``queries`` (n, D), and their products.

    Both results are (n, count), best first, narrower where there are fewer documents. The earlier of equal ones comes
    first.
    """
    count = min(count, len(documents))
    indices, scores = np.zeros((len(queries), count), np.int32), np.zeros((len(queries), count), np.float32)
    for start in range(0, len(queries), QUERIES):
        block = slice(start, start + QUERIES)
        known, best = indices[block, :0], scores[block, :0]
        for first in range(0, len(documents), DOCUMENTS):
            products = queries[block] @ documents[first : first + DOCUMENTS].T
            rows, columns = np.nonzero(_candidates(products, best, count))
            numbers = (columns + first).astype(np.int32)
            known, best = _merge(known, best, rows, numbers, products[rows, columns], count)
        indices[block], scores[block] = known, best
    return indices, scores


def _candidates(products: Embeddings, best: Embeddings, count: int) -> NDArray[np.bool_]:
    """Return which products may be among the best ``count`` of their query; ``best`` are those of earlier blocks."""
    if best.shape[1] == count:
        # A later document that is only as near as the last of the best ranks after it.
        return products > best[:, -1:]
    if products.shape[1] <= count:
        return np.ones(products.shape, np.bool_)
    rank = products.shape[1] - count
    return products >= np.partition(products, rank, axis=1)[:, rank, None]


def _merge(
    indices: Indices, best: Embeddings, rows: NDArray[np.intp], columns: Indices, products: Embeddings, count: int
) -> tuple[Indices, Embeddings]:
    """Return the best of the earlier ``indices`` and of new ones, each given by its row, document and product."""
    queries, known = indices.shape
    row = np.concatenate([np.repeat(np.arange(queries), known), rows])
    document, score = np.concatenate([indices.ravel(), columns]), np.concatenate([best.ravel(), products])
    order = np.lexsort((document, -score, row))
    sizes = np.bincount(row, minlength=queries)
    rank = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    best_of_both = order[rank < count]
    width = len(best_of_both) // queries
    return document[best_of_both].reshape(queries, width), score[best_of_both].reshape(queries, width)
