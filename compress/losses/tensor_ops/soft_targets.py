"""Choose each row's soft targets: the data set's probabilities where given, else the teacher's outputs."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from compress.batch_arrays import SOFT_LABELS
from compress.losses import OutputForm
from compress.losses.tensor_ops.row_groups import Tensors


def has_soft_labels(batch: Tensors) -> Tensor:
    """Return which examples (examples,) have probabilities of the data set, on the device of `soft_labels`."""
    return batch[SOFT_LABELS].isfinite().all(dim=-1)


def select_soft_targets(teacher: Tensors, batch: Tensors, pooling: str, form: OutputForm) -> Tensors:
    """Return the target outputs: logits of the data set's probabilities for rows that have them, else the teacher's.

    Args:
        teacher: the teacher's outputs; empty where every row has probabilities.
        batch: with `soft_labels`, float32 (examples, classes), equal for all windows of a row; NaN in rows without.
        pooling: how windows are pooled.
        form: of the outputs, a fact of the task's kind.
    """
    device = batch["input_ids"].device
    given = logits_from_probabilities(batch[SOFT_LABELS].to(device, non_blocking=True), pooling, form)
    own = has_soft_labels(batch)[:, None].to(device, non_blocking=True)
    return {
        name: torch.where(own, logits, teacher[name].float()) if teacher else logits for name, logits in given.items()
    }


def logits_from_probabilities(probabilities: Tensor, pooling: str, form: OutputForm) -> Tensors:
    """Return the model outputs that correspond to these probabilities, for `soft_label`.

    Logits are ``log p``, of classes by themselves ``log p - log(1 - p)``; a softmax (or logistic function) turns them
    back into these probabilities, and a temperature softens them as it does a model's. A probability of zero becomes a
    logit of minus infinity.

    Args:
        probabilities: (examples, classes) float32, those of a row for each of its windows.
        pooling: how windows are pooled. With attention pooling there is one more output, zero for all windows.
        form: of the outputs, a fact of the task's kind.
    """
    logits = probabilities.log()
    if form.distribution == "sigmoid":
        logits = logits - (1 - probabilities).log()
    return {"logits": pad(logits, (0, 1)) if pooling == "attention" else logits}
