"""Multi-label classification: binary cross-entropy of each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from compress.losses.tensor_ops.pool_window_logits import pool_window_logits
from compress.losses.tensor_ops.row_groups import RowGroups

if TYPE_CHECKING:
    from compress.model_info import TaskInfo


def bce(outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor], task: TaskInfo) -> Tensor:
    """Return ``-y log s(z) - (1 - y) log(1 - s(z))`` with the logistic function s, as a mean over classes and rows.

    Nam et al., "Large-scale Multi-label Text Classification - Revisiting Neural Networks", 2013 (arXiv:1312.5419).

    Args:
        outputs: `logits` (examples, classes), with one more output for attention pooling of windows.
        batch: `labels` (examples, classes) float32, 0 or 1; `group` where rows are several windows.
        task: how windows are pool_window_logits (`long`).
    """
    groups = RowGroups.from_batch(batch)
    logits = pool_window_logits(outputs["logits"].float(), groups, task.long)
    return F.binary_cross_entropy_with_logits(logits, groups.first(batch["labels"]))
