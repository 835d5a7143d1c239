"""Pooling of window logits into row logits, as `tasks/decoding/window_pooling.py` does in numpy, with gradients."""

from __future__ import annotations

from torch import Tensor

from compress.losses.tensor_ops.row_groups import MASKED_LOGIT, RowGroups


def pool_window_logits(logits: Tensor, groups: RowGroups, how: str) -> Tensor:
    """Return the logits of each row (rows, labels) from those of its windows (windows, outputs).

    `mean` and `max` apply to each label separately. `attention` takes the last output of each window as its score and
    averages the other outputs with the softmax of these scores. `cut` has one window per row.
    """
    if how == "cut":
        return logits
    if how == "mean":
        return groups.mean(logits)
    if how == "max":
        return groups.pad(logits, MASKED_LOGIT).amax(dim=1)
    window_weights = groups.pad(logits[:, -1], MASKED_LOGIT).softmax(dim=1)
    return (groups.pad(logits[:, :-1]) * window_weights[:, :, None]).sum(dim=1)
