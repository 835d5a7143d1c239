"""Averages that padding never enters."""

from __future__ import annotations

from torch import Tensor


def mean_over_tokens(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of ``values`` (rows, tokens) over each row's real tokens, then over rows.

    Every row weighs the same whatever its length. A mean over all tokens of the batch would depend on which rows share
    it, and so on how a batch is split over processes or accumulated.
    """
    real = mask.to(values.dtype)
    per_row = (values * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
    return per_row.mean()
