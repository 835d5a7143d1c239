"""One prediction of several windows: the logits of a long text from those of its windows, in numpy.

`losses/tensor_ops/logit_views.py` has the same rule with gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from compress.tasks.base import Array


def pool_window_logits(logits: NDArray[np.float64], counts: Sequence[int], how: str) -> NDArray[np.float64]:
    """Return the logits of each row (rows, labels) from those of its windows.

    Args:
        logits: (windows, outputs), the windows of each row one after another.
        counts: windows of each row.
        how: `mean` or `max` of each label; `attention` takes the last output of each window as its weight, through a
            softmax over the row; `cut` has one window per row.
    """
    starts = np.cumsum([0, *counts[:-1]])
    if how == "cut":
        return logits
    if how == "max":
        return np.maximum.reduceat(logits, starts, axis=0)
    weights = np.ones(len(logits)) if how == "mean" else _row_odds(logits[:, -1], starts, counts)
    values = logits if how == "mean" else logits[:, :-1]
    total = np.add.reduceat(weights, starts)
    return np.add.reduceat(values * weights[:, None], starts, axis=0) / total[:, None]


def _row_odds(scores: NDArray[np.float64], starts: Array, counts: Sequence[int]) -> NDArray[np.float64]:
    """Return the exponentials of the scores relative to the highest of each row, so that none overflows."""
    return np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), counts))
