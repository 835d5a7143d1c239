"""Training objectives: named losses of a batch, and the weights of classes in the task's loss.

The training loop knows neither tasks nor teachers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.batch_arrays import LABEL_WEIGHTS, TEACHER_IDS, BatchArray
from compress.data.splits.row_store import Origin
from compress.errors import UsageError
from compress.model_folder.model_info import TaskInfo
from compress.models.encoder_parts import family_of
from compress.recipe.training_schema import Training
from compress.tasks import kind_of
from compress.tasks.base import Arrays, Row
from compress.train.label_scale import LabelScale


def class_weights(settings: Training, rows: Iterable[Row], task: TaskInfo) -> Tensor | None:
    """Return the weight (2, classes) of labels that are not, and that are, each class; None where none are requested.

    With n rows, of which m have the class: ``n / (classes m)`` where a row has one class; else, for each class on its
    own, ``n / (2 m)`` for rows that have it and ``n / (2 (n - m))`` for the others. The mean weight of all labels is 1,
    so the learning rate keeps its meaning.
    """
    if settings.class_weights is None:
        return None
    kind = kind_of(task)
    if not kind.loss.weighted:
        raise UsageError(f"class_weights has no effect for {kind.name}.", hint="leave it out")
    counts, total = Counter[int](), 0
    for row in rows:
        counts.update(kind.row_classes(row))
        total += 1
    present = torch.tensor([counts[label] for label in range(len(task.labels))], dtype=torch.float64)
    parts = len(task.labels) if kind.exclusive else 2
    by_label = torch.stack([total - present, present])
    return (total / (parts * by_label.clamp(min=1))).float()


def with_label_weights(batch: Mapping[str, Tensor], weights: Tensor | None) -> Mapping[str, Tensor]:
    """Return the batch with the weight of each label; unchanged without ``weights``."""
    if weights is None:
        return batch
    labels, (absent, present) = batch["labels"], weights.to(batch["labels"].device)
    chosen = torch.where(labels > 0, present, absent) if labels.is_floating_point() else present[labels]
    return {**batch, LABEL_WEIGHTS: chosen}


Batch = Mapping[str, Tensor]
TASK = "task"
"""Name of the task's loss where it is the only one."""
Losses = dict[str, Tensor]
"""Weighted losses, each a mean over the batch's rows; their sum is minimized."""


class Objective:
    """Computes the named losses of a batch; the defaults are those of losses that never change and need no teacher."""

    scale: LabelScale | None = None
    """Of labels that are numbers: outputs are compared in its unit."""

    def modules(self) -> Sequence[nn.Module]:
        """Return modules that are trained with the model and discarded afterwards (projections)."""
        return ()

    def learning(self, model: PreTrainedModel) -> AbstractContextManager[None]:
        """Return the context in which a model is trained."""
        return self.scale.learnt_by(model) if self.scale else nullcontext()

    def in_unit(self, loss: Tensor) -> Tensor:
        """Return a loss of outputs in the unit of the labels, where these are numbers."""
        return loss / self.scale.spread**2 if self.scale else loss

    def identity(self) -> str:
        """Return what the losses depend on besides the settings: the task and the teachers' weights."""
        raise NotImplementedError

    def begin(self, progress: float, update: int = 0) -> None:
        """Prepare an update, counted from 0; ``progress`` is the share of all updates that are done."""

    def is_selectable(self) -> bool:
        """Return whether the current weights may be selected as the best; before that scores are only recorded."""
        return True

    def has_independent_rows(self) -> bool:
        """Return whether the losses of a row are the same whatever else is in its batch."""
        return False

    def teachers(self) -> Sequence[PreTrainedModel]:
        """Return the models that run besides the trained one; they use the training's device and precision."""
        return ()

    def uncached(self) -> Objective:
        """Return an objective of the same losses that writes no files."""
        return self

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """Compute the losses of one batch; ``model`` is in training mode."""
        raise NotImplementedError


class Examples(Protocol):
    """Encoded training rows; `data.encode.EncodedRows` implements it."""

    lengths: NDArray[np.int64]
    example_lengths: NDArray[np.int64]
    """Number of tokens of each example that a batch's `index` can name."""
    cacheable: int
    """The number of examples, from the first, whose teacher outputs are worth caching."""

    def digest(self) -> str:
        """Return a digest of the examples."""

    def arrays(self) -> Mapping[str, BatchArray]:
        """Return the declarations of the arrays of a batch, by name."""

    def vocabulary(self) -> NDArray[np.int64]:
        """Return all token ids that batches can hold, ascending."""

    def batch(self, indices: NDArray[np.int64]) -> Arrays:
        """Return the padded arrays of these examples."""

    def origins(self, indices: NDArray[np.int64]) -> list[Origin]:
        """Return the source rows of these examples."""


class TaskObjective(Objective):
    """The task's loss on the true labels."""

    def __init__(self, task: TaskInfo, weights: Tensor | None = None, scale: LabelScale | None = None) -> None:
        """``weights`` are those of `class_weights`, where classes are weighted; ``scale`` that of `label_scale`."""
        self.task, self.weights, self.scale = task, weights, scale
        self.loss = kind_of(task).loss

    def identity(self) -> str:
        """Return the task as JSON."""
        return self.task.model_dump_json()

    def has_independent_rows(self) -> bool:
        """Return False where the task's loss compares rows: a query's negatives are the documents of other rows."""
        return not self.loss.compares_rows

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """Compute the task's loss."""
        return {TASK: self.loss_of(forward(model, batch), batch)}

    def loss_of(self, outputs: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Return the loss of a model's outputs on a batch."""
        loss: Tensor = self.loss.function(outputs, with_label_weights(batch, self.weights), self.task.long)
        return self.in_unit(loss)


def forward(model: PreTrainedModel, batch: Batch) -> Mapping[str, Tensor]:
    """Run the model on those arrays of the batch that its family takes; the others are for the losses."""
    inputs = family_of(model).inputs
    outputs: Mapping[str, Tensor] = model(**{name: value for name, value in batch.items() if name in inputs})
    return outputs


def forward_teacher(teacher: PreTrainedModel, batch: Batch) -> Mapping[str, Tensor]:
    """Run a teacher, on the ids of its own vocabulary where the student has another one."""
    return forward(teacher, {**batch, "input_ids": batch.get(TEACHER_IDS, batch["input_ids"])})
