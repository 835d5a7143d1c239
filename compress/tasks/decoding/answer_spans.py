"""Places of answers: from characters to pieces of a window, and from a model's scores to the best spans. Pure numpy.

A span's score is that of its first piece as a beginning plus that of its last as an end; the score of no answer is the
same of the first piece of all, [CLS] (Devlin and others, 2019, section 4.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

KEPT = 20
"""Spans kept of each window, and looked at of each row."""

SPAN = np.dtype([("first", np.int32), ("last", np.int32), ("score", np.float32)])
"""The characters of a span, the one behind its last, and its score; no answer is (-1, -1, its score)."""


def token_span(
    spans: Sequence[tuple[int, int]], answer: tuple[int, int], is_first: bool, is_last: bool
) -> tuple[int, int]:
    """The first and last piece of an answer given by its characters; (0, 0) where the window does not hold all of it.

    ``spans`` are the characters of each piece, (-1, -1) outside the context. Characters that no piece stands for are
    nobody's: at the ends of the first and last window an answer may begin or end with some.
    """
    held = [place for place, (low, high) in enumerate(spans) if high > low >= 0]
    start, end = answer
    if not held or (not is_first and start < spans[held[0]][0]) or (not is_last and end > spans[held[-1]][1]):
        return 0, 0
    first = next((place for place in held if spans[place][1] > start), len(spans))
    last = next((place for place in reversed(held) if spans[place][0] < end), 0)
    return (first, last) if first <= last else (0, 0)


def best_spans(
    start: NDArray[np.floating[Any]], end: NDArray[np.floating[Any]], context: NDArray[Any], longest: int
) -> list[list[tuple[int, int, float]]]:
    """The best spans of each window as (first piece, last piece, score), best first.

    ``start``, ``end`` and ``context`` are (windows, pieces). Spans begin and end where ``context`` is not zero and have
    ``longest`` pieces at most. All of them are compared, so these are the best ones and not those of the best ends.
    """
    windows, pieces = start.shape
    longest = min(longest, pieces)
    begins = np.where(context != 0, start, -np.inf)
    ends = np.pad(np.where(context != 0, end, -np.inf), ((0, 0), (0, longest - 1)), constant_values=-np.inf)
    scores = (begins[:, :, None] + sliding_window_view(ends, longest, axis=1)).reshape(windows, -1)
    kept = min(KEPT, scores.shape[1])
    highest = np.argpartition(scores, scores.shape[1] - kept, axis=1)[:, -kept:]
    return [_ordered(line, line_scores[line], longest) for line, line_scores in zip(highest, scores, strict=True)]


def _ordered(flat: NDArray[np.intp], scores: NDArray[Any], longest: int) -> list[tuple[int, int, float]]:
    """Spans by falling score, earlier ones first among equals; those outside the context left out."""
    order = np.lexsort((flat, -scores))
    first, more = np.divmod(flat[order], longest)
    found = zip(first.tolist(), (first + more).tolist(), scores[order].tolist(), strict=True)
    return [span for span in found if span[2] > -np.inf]


def merged(windows: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], float]:
    """The best spans of a row, best first and each once, and the row's score of no answer: the least of its windows'.

    Each of ``windows`` is an array of SPAN that begins with the score of no answer.
    """
    nothing = min(float(window["score"][0]) for window in windows)
    spans = np.concatenate([window[1:] for window in windows])
    spans = spans[np.argsort(-spans["score"], kind="stable")]
    if len(windows) > 1:
        _, firsts = np.unique(spans[["first", "last"]], return_index=True)
        spans = spans[np.sort(firsts)]
    return spans[:KEPT], nothing
