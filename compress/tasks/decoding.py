"""From a model's outputs to predictions: answer spans, nearest documents, and one prediction of several windows. Numpy.

A span's score is the start score of its first token plus the end score of its last; the score of no answer is the same
of the window's first token, [CLS] (Devlin and others, 2019, section 4.3). Nearest documents are exact: those with the
largest inner products, block by block, so that memory is one block of products; an approximate index would be faster on
many millions of documents, and answer some queries wrongly. `losses/tensor_ops/logit_views.py` has the rule for windows
with gradients.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from compress.tasks.base import Array

MAX_SPANS = 20
"""Spans stored of each window, and compared of each row."""

OUTSIDE_MARGIN = 1.0
"""How far a threshold lies outside all margins where every row, or none, should be answered."""

SPAN = np.dtype([("first", np.int32), ("last", np.int32), ("score", np.float32)])
"""A span's first and end character, and its score; no answer is (-1, -1, its score)."""


def token_span(
    spans: Sequence[tuple[int, int]], answer: tuple[int, int], is_first: bool, is_last: bool
) -> tuple[int, int]:
    """Return the first and last token of an answer given by its characters; (0, 0) if the window does not hold it.

    ``spans`` are the characters of each token, (-1, -1) outside the context. Some characters belong to no token: in the
    first and last window an answer may start or end with some.
    """
    context = [index for index, (start, end) in enumerate(spans) if end > start >= 0]
    start, end = answer
    if not context or (not is_first and start < spans[context[0]][0]) or (not is_last and end > spans[context[-1]][1]):
        return 0, 0
    first = next((index for index in context if spans[index][1] > start), len(spans))
    last = next((index for index in reversed(context) if spans[index][0] < end), 0)
    return (first, last) if first <= last else (0, 0)


def best_spans(
    start: NDArray[np.floating[Any]], end: NDArray[np.floating[Any]], context: Array, max_tokens: int
) -> list[list[tuple[int, int, float]]]:
    """Return the best spans of each window as (first token, last token, score), best first.

    All spans are compared, so these are the best ones and not those of the best ends.

    Args:
        start: start scores (windows, tokens).
        end: end scores, of the same shape.
        context: not zero where spans may start and end.
        max_tokens: tokens of the longest span.
    """
    windows, tokens = start.shape
    longest = min(max_tokens, tokens)
    starts = np.where(context != 0, start, -np.inf)
    ends = np.pad(np.where(context != 0, end, -np.inf), ((0, 0), (0, longest - 1)), constant_values=-np.inf)
    scores = (starts[:, :, None] + sliding_window_view(ends, longest, axis=1)).reshape(windows, -1)
    count = min(MAX_SPANS, scores.shape[1])
    highest = np.argpartition(scores, scores.shape[1] - count, axis=1)[:, -count:]
    return [_sorted_spans(line, line_scores[line], longest) for line, line_scores in zip(highest, scores, strict=True)]


def _sorted_spans(flat: NDArray[np.intp], scores: Array, longest: int) -> list[tuple[int, int, float]]:
    """Return spans by falling score, earlier ones first among equals, without those outside the context."""
    order = np.lexsort((flat, -scores))
    first, more = np.divmod(flat[order], longest)
    spans = zip(first.tolist(), (first + more).tolist(), scores[order].tolist(), strict=True)
    return [span for span in spans if span[2] > -np.inf]


def merge_windows(windows: Sequence[Array]) -> tuple[Array, float]:
    """Return the distinct best spans of a row, best first, and its score of no answer: the least of its windows'.

    Each of ``windows`` is an array of SPAN that begins with the score of no answer.
    """
    no_answer = min(float(window["score"][0]) for window in windows)
    spans = np.concatenate([window[1:] for window in windows])
    spans = spans[np.argsort(-spans["score"], kind="stable")]
    if len(windows) > 1:
        _, firsts = np.unique(spans[["first", "last"]], return_index=True)
        spans = spans[np.sort(firsts)]
    return spans[:MAX_SPANS], no_answer


def best_threshold(margins: NDArray[np.float64], answered: NDArray[np.float64], dropped: NDArray[np.float64]) -> float:
    """Return the threshold with the highest total score, where rows are answered up to that margin of no answer.

    Every way to divide the rows is tried; the threshold lies in the middle between two rows, so that it stays right
    when a runtime rounds differently. Of equally good ones the lowest is taken.

    Args:
        margins: by how much no answer scores higher than each row's best span.
        answered: each row's score with its answer.
        dropped: each row's score without.
    """
    order = np.argsort(margins, kind="stable")
    ordered = margins[order]
    totals = dropped.sum() + np.concatenate([[0.0], np.cumsum((answered - dropped)[order])])
    # Rows with the same margin are answered together or not at all.
    can_divide = np.concatenate([[True], ordered[1:] > ordered[:-1], [True]])
    count = int(np.argmax(np.where(can_divide, totals, -np.inf)))
    low = ordered[count - 1] if count else ordered[0] - 2 * OUTSIDE_MARGIN
    high = ordered[count] if count < len(ordered) else ordered[-1] + 2 * OUTSIDE_MARGIN
    return float((low + high) / 2.0)


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


def pool_window_logits(logits: NDArray[np.float64], counts: Sequence[int], how: str) -> NDArray[np.float64]:
    """Return the logits of each row (rows, labels) from those of its windows.

    Args:
        logits: (windows, outputs), the windows of each row one after another.
        counts: windows of each row.
        how: `mean` or `max` of each label; `attention` takes the last output of each window as its weight, through a
            softmax over the row; `cut` has one window per row.
    """
    if how == "cut":
        return logits
    starts = np.cumsum([0, *counts[:-1]])
    if how == "max":
        return np.maximum.reduceat(logits, starts, axis=0)
    weights = np.ones(len(logits)) if how == "mean" else _row_odds(logits[:, -1], starts, counts)
    values = logits if how == "mean" else logits[:, :-1]
    total = np.add.reduceat(weights, starts)
    return np.add.reduceat(values * weights[:, None], starts, axis=0) / total[:, None]


def _row_odds(scores: NDArray[np.float64], starts: Array, counts: Sequence[int]) -> NDArray[np.float64]:
    """Return the exponentials of the scores relative to the highest of each row, so that none overflows."""
    return np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), counts))
