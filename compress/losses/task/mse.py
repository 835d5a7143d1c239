"""Regression: squared error."""

import torch.nn.functional as F
from torch import Tensor

from compress.losses.tensor_ops.logit_views import row_view
from compress.losses.tensor_ops.row_groups import RowGroups, Tensors


def mse(outputs: Tensors, batch: Tensors, pooling: str) -> Tensor:
    """Return ``(z - y)²`` of each row's pooled output z and number y, as a mean over rows.

    Args:
        outputs: `logits` (examples, 1), with one more output for attention pooling of windows.
        batch: `labels` (examples,) float32; `group` where rows are several windows.
        pooling: how windows are pooled (the task's `long`).
    """
    (view,) = row_view(outputs, batch, pooling)
    labels = RowGroups.from_batch(batch).first(batch["labels"])
    return F.mse_loss(view.logits.squeeze(-1), labels)
