"""Probabilities that rows bring along, as the outputs of a model that would answer so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn.functional import pad

if TYPE_CHECKING:
    from compress.model_info import TaskInfo


def logits_from_probabilities(probabilities: Tensor, task: TaskInfo, problem: str) -> Mapping[str, Tensor]:
    """What a teacher would put out to answer with these probabilities, for `soft_label`.

    Logits are ``log p``, for several classes at once ``log p - log(1 - p)``; a softmax (or logistic function) makes
    probabilities of them again, and a temperature softens them as it does a model's. A probability of zero is a logit
    of minus infinity.

    Args:
        probabilities: (examples, classes) float32, those of a row for each of its windows.
        task: how windows are pooled: where they are weighed, there is one more output, and they weigh the same.
        problem: the task kind's.
    """
    logits = probabilities.log()
    if problem == "multi_label_classification":
        logits = logits - (1 - probabilities).log()
    return {"logits": pad(logits, (0, 1)) if task.long == "attention" else logits}
