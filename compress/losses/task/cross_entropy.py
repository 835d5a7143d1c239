"""Single-label classification: cross-entropy of the true class."""

import torch.nn.functional as F
from torch import Tensor

from compress.batch_arrays import LABEL_WEIGHTS
from compress.losses.tensor_ops.logit_views import row_view
from compress.losses.tensor_ops.row_groups import RowGroups, Tensors


def cross_entropy(outputs: Tensors, batch: Tensors, pooling: str) -> Tensor:
    """Return ``-w log softmax(z)[y]`` of each row's pooled logits z and class y, as a mean over rows.

    Bridle, "Probabilistic Interpretation of Feedforward Classification Network Outputs", 1990.

    Args:
        outputs: `logits` (examples, classes), with one more output for attention pooling of windows.
        batch: `labels` (examples,) int64, the same for all windows of a row; `group` where rows are several windows;
            `label_weights` (examples,) for w, 1 if not given. The mean is not divided by the sum of the weights, which
            would depend on how rows are distributed over batches.
        pooling: how windows are pooled (the task's `long`).
    """
    (view,) = row_view(outputs, batch, pooling)
    groups = RowGroups.from_batch(batch)
    labels = groups.first(batch["labels"])
    if LABEL_WEIGHTS not in batch:
        return F.cross_entropy(view.logits, labels)
    return (groups.first(batch[LABEL_WEIGHTS]) * F.cross_entropy(view.logits, labels, reduction="none")).mean()
