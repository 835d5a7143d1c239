"""Which documents are nearest to each query, exactly: the largest inner products, found block by block.

Of a block of queries and a block of documents all products are formed; only those that may still be among the best
are looked at again. Memory is one block of products, whatever the number of queries and documents, and time grows with
the product of the two. An index that skips documents would be faster on many millions, and answer some queries
wrongly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

QUERIES, DOCUMENTS = 512, 16_384
"""Of so many together all products are formed: 32 MB of them."""

Embeddings = NDArray[np.float32]
Places = NDArray[np.int32]


def nearest_documents(queries: Embeddings, documents: Embeddings, count: int) -> tuple[Places, Embeddings]:
    """The ``count`` nearest of ``documents`` (m, D) to each of ``queries`` (n, D), best first, with their products.

    Both results are (n, count), narrower where there are fewer documents. Of equal ones the earlier document comes
    first.
    """
    count = min(count, len(documents))
    found = np.empty((len(queries), count), np.int32)
    scores = np.empty((len(queries), count), np.float32)
    for start in range(0, len(queries), QUERIES):
        block = slice(start, start + QUERIES)
        found[block], scores[block] = _nearest_of_block(queries[block], documents, count)
    return found, scores


def _nearest_of_block(queries: Embeddings, documents: Embeddings, count: int) -> tuple[Places, Embeddings]:
    found = np.zeros((len(queries), 0), np.int32)
    best = np.zeros((len(queries), 0), np.float32)
    for start in range(0, len(documents), DOCUMENTS):
        products = queries @ documents[start : start + DOCUMENTS].T
        rows, columns = np.nonzero(_hopeful(products, best, count))
        found, best = _merged(found, best, rows, (columns + start).astype(np.int32), products[rows, columns], count)
    return found, best


def _hopeful(products: Embeddings, best: Embeddings, count: int) -> NDArray[np.bool_]:
    """Which products may be among the best ``count`` of their query; those found so far are ``best``."""
    if best.shape[1] == count:
        # A later document that is only as near as the last one found stays behind it.
        beaten: NDArray[np.bool_] = products > best[:, -1:]
        return beaten
    if products.shape[1] <= count:
        return np.ones(products.shape, np.bool_)
    place = products.shape[1] - count
    least: NDArray[np.bool_] = products >= np.partition(products, place, axis=1)[:, place, None]
    return least


def _merged(
    found: Places, best: Embeddings, rows: NDArray[np.intp], columns: Places, products: Embeddings, count: int
) -> tuple[Places, Embeddings]:
    """The best of those ``found`` and of new ones, each given by its row, document and product."""
    queries, known = found.shape
    row = np.concatenate([np.repeat(np.arange(queries), known), rows])
    document, score = np.concatenate([found.ravel(), columns]), np.concatenate([best.ravel(), products])
    order = np.lexsort((document, -score, row))
    sizes = np.bincount(row, minlength=queries)
    place = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = order[place < count]
    width = len(kept) // queries
    return document[kept].reshape(queries, width), score[kept].reshape(queries, width)
