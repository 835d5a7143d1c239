"""Regression: squared error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from compress.losses.tensor_ops.pool_window_logits import pool_window_logits
from compress.losses.tensor_ops.row_groups import RowGroups

if TYPE_CHECKING:
    from compress.model_info import TaskInfo


def mse(outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor], task: TaskInfo) -> Tensor:
    """Return ``(z - y)²`` of each row's pooled output z and number y, as a mean over rows.

    Args:
        outputs: `logits` (examples, 1), with one more output for attention pooling of windows.
        batch: `labels` (examples,) float32; `group` where rows are several windows.
        task: how windows are pool_window_logits (`long`).
    """
    groups = RowGroups.from_batch(batch)
    logits = pool_window_logits(outputs["logits"].float(), groups, task.long)
    return F.mse_loss(logits.squeeze(-1), groups.first(batch["labels"]))
