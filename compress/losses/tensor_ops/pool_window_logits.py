"""One answer of several windows, as `tasks/decoding/window_pooling.py` pools them, with gradients."""

from __future__ import annotations

from torch import Tensor

from compress.losses.tensor_ops.row_groups import MASKED_LOGIT, RowGroups


def pool_window_logits(logits: Tensor, groups: RowGroups, how: str) -> Tensor:
    """The logits of each row (rows, labels) from those of its windows (windows, outputs).

    `mean` and `max` do what they say to each label. `attention` takes the last output of each window as how much the
    window has to say, and weighs the others by the softmax of that. `cut` has one window a row.
    """
    if how == "cut":
        return logits
    if how == "mean":
        return groups.mean(logits)
    if how == "max":
        return groups.padded(logits, MASKED_LOGIT).amax(dim=1)
    odds = groups.padded(logits[:, -1], MASKED_LOGIT).softmax(dim=1)
    return (groups.padded(logits[:, :-1]) * odds[:, :, None]).sum(dim=1)
