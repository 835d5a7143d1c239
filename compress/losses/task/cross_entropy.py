"""Single-label classification: cross-entropy of the true class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from compress.losses.tensor_ops.pool_window_logits import pool_window_logits
from compress.losses.tensor_ops.row_groups import RowGroups

if TYPE_CHECKING:
    from compress.model_info import TaskInfo


def cross_entropy(outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor], task: TaskInfo) -> Tensor:
    """Return ``-log softmax(z)[y]`` of each row's pooled logits z and class y, as a mean over rows.

    Bridle, "Probabilistic Interpretation of Feedforward Classification Network Outputs", 1990.

    Args:
        outputs: `logits` (examples, classes), with one more output for attention pooling of windows.
        batch: `labels` (examples,) int64, the same for all windows of a row; `group` where rows are several windows.
        task: how windows are pool_window_logits (`long`).
    """
    groups = RowGroups.from_batch(batch)
    logits = pool_window_logits(outputs["logits"].float(), groups, task.long)
    return F.cross_entropy(logits, groups.first(batch["labels"]))
