"""Averages that padding never enters."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from compress.losses.tensor_ops.row_groups import RowGroups


def mean_over_tokens(values: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """The mean of ``values`` (examples, tokens) over each row's real tokens, then over rows.

    Every row weighs the same whatever its length, and however many examples it has. A mean over all tokens of the batch
    would depend on which rows share it, and so on how a batch is split over processes or accumulated.

    Args:
        values: of any float type. Padding weighs zero, so its values must be numbers, as those are that a model
            computes there: zero times what is not a number is not one either.
        batch: `attention_mask` (examples, tokens), one for real tokens; `group` where rows are several examples.
    """
    return (values * RowGroups.of(batch).weights(batch["attention_mask"])).sum()


def mean_over_examples(values: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """The mean of ``values`` (examples,) over each row's examples, then over rows."""
    return (values * RowGroups.of(batch).of_examples()).sum()
