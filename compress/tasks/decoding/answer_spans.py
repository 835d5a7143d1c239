"""Answer spans: from characters to tokens of a window, and from a model's scores to the best ones. Pure numpy.

A span's score is the start score of its first token plus the end score of its last; the score of no answer is the
same of the window's first token, [CLS] (Devlin and others, 2019, section 4.3).
"""

from __future__ import annotations

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
