"""Weights of classes in the task's loss, so that rare ones count as much as frequent ones.

King and Zeng, "Logistic Regression in Rare Events Data", Political Analysis 9 (2001): each class is weighted by the
inverse of its share of the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from compress.batch_arrays import LABEL_WEIGHTS
from compress.model_info import TaskInfo
from compress.recipe.training_schema import Training
from compress.tasks import kind_of
from compress.tasks.base import Row


def class_weights(settings: Training, rows: Sequence[Row], task: TaskInfo) -> Tensor | None:
    """Return the weight (2, classes) of labels that are not, and that are, each class; None where none are requested.

    With n rows, of which m have the class: ``n / (classes m)`` where a row has one class; else, for each class on its
    own, ``n / (2 m)`` for rows that have it and ``n / (2 (n - m))`` for the others. The mean weight of all labels is 1,
    so the learning rate keeps its meaning.
    """
    if settings.class_weights is None:
        return None
    kind = kind_of(task)
    counts = Counter(label for row in rows for label in kind.row_classes(row))
    present = torch.tensor([counts[label] for label in range(len(task.labels))], dtype=torch.float64)
    parts = len(task.labels) if kind.exclusive else 2
    by_label = torch.stack([len(rows) - present, present])
    return (len(rows) / (parts * by_label.clamp(min=1))).float()


def with_label_weights(batch: Mapping[str, Tensor], weights: Tensor | None) -> Mapping[str, Tensor]:
    """Return the batch with the weight of each label; unchanged without ``weights``."""
    if weights is None:
        return batch
    labels, (absent, present) = batch["labels"], weights.to(batch["labels"].device)
    chosen = torch.where(labels > 0, present, absent) if labels.is_floating_point() else present[labels]
    return {**batch, LABEL_WEIGHTS: chosen}
