"""Means that exclude padding and weigh every row equally."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from compress.losses.tensor_ops.row_groups import RowGroups


def mean_over_tokens(values: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the mean of ``values`` (examples, tokens) over each row's real tokens, then over rows.

    Every row has the same weight whatever its length and number of examples. A mean over all tokens of the batch would
    depend on which rows share it, and so on how a batch is split over processes or accumulation steps.

    Args:
        values: of any float type. Padding has weight zero, so its values must be finite (zero times NaN is NaN), as
            those a model computes there are.
        batch: `attention_mask` (examples, tokens), one for real tokens; `group` where rows are several examples.
    """
    return (values * RowGroups.from_batch(batch).item_weights(batch["attention_mask"])).sum()


def mean_over_examples(values: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the mean of ``values`` (examples,) over each row's examples, then over rows."""
    return (values * RowGroups.from_batch(batch).example_weights()).sum()
