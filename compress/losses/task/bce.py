"""Multi-label classification: binary cross-entropy of each class."""

import torch.nn.functional as F
from torch import Tensor

from compress.batch_arrays import LABEL_WEIGHTS
from compress.losses.tensor_ops.logit_views import row_view
from compress.losses.tensor_ops.row_groups import RowGroups, Tensors


def bce(outputs: Tensors, batch: Tensors, pooling: str) -> Tensor:
    """Return ``-w (y log s(z) + (1 - y) log(1 - s(z)))`` with the logistic function s, as a mean over classes and rows.

    Nam et al., "Large-scale Multi-label Text Classification - Revisiting Neural Networks", 2013 (arXiv:1312.5419).

    Args:
        outputs: `logits` (examples, classes), with one more output for attention pooling of windows.
        batch: `labels` (examples, classes) float32, 0 or 1; `group` where rows are several windows; `label_weights`
            (examples, classes) for w, 1 if not given.
        pooling: how windows are pooled (the task's `long`).
    """
    (view,) = row_view(outputs, batch, pooling)
    groups = RowGroups.from_batch(batch)
    weights = groups.first(batch[LABEL_WEIGHTS]) if LABEL_WEIGHTS in batch else None
    return F.binary_cross_entropy_with_logits(view.logits, groups.first(batch["labels"]), weights)
