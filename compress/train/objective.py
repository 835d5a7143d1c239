"""What a training step minimises. The loop knows nothing of tasks or teachers: it asks for named losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.batch_arrays import BatchArray
from compress.data.splits.concatenated_rows import Origin
from compress.losses import TASK_LOSSES
from compress.model_info import TaskInfo
from compress.models.encoder_parts import family_of
from compress.tasks import kind_of
from compress.tasks.base import Arrays

Batch = Mapping[str, Tensor]
TASK = "task"
"""What the task's own loss is called where it is the only one."""
Losses = dict[str, Tensor]
"""Already weighted; their sum is minimised. Each is a mean over the batch's rows."""


class Objective(Protocol):
    """A batch becomes named losses."""

    def modules(self) -> Sequence[nn.Module]:
        """What is trained beside the model and dropped afterwards (projections)."""
        ...

    def identity(self) -> str:
        """What the losses come from beside a training's settings: its task, and whoever teaches."""
        ...

    def begin(self, progress: float) -> None:
        """Told before each update: the share of all updates that are done."""
        ...

    def is_selectable(self) -> bool:
        """Whether what is learnt now is what the model is kept for; before that no score counts."""
        ...

    def seconds_cached(self) -> float:
        """Seconds so far that no later epoch takes again: asking a teacher whose words are kept."""
        ...

    def teachers(self) -> Sequence[PreTrainedModel]:
        """The models that run beside the one that is trained: they take the training's device and precision."""
        ...

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """The losses of one batch; ``model`` is in training mode."""
        ...


class Examples(Protocol):
    """What training reads: `data.batches.EncodedRows`, or anything like it."""

    lengths: NDArray[np.int64]
    example_lengths: NDArray[np.int64]
    """Pieces of each example that a batch's `index` can name."""
    cacheable: int
    """So many of these, from the first on, are worth keeping a teacher's answers of."""

    def digest(self) -> str:
        """What they are known by."""
        ...

    def arrays(self) -> Mapping[str, BatchArray]:
        """Return the declarations of the arrays of a batch, by name."""
        ...

    def vocabulary(self) -> NDArray[np.int64]:
        """The ids of all pieces that a batch can hold, ascending."""
        ...

    def batch(self, indices: NDArray[np.int64]) -> Arrays:
        """The padded arrays of these examples."""
        ...

    def origins(self, indices: NDArray[np.int64]) -> list[Origin]:
        """Where the rows come from that these examples were made of."""
        ...


class TaskObjective:
    """The task's own loss on what the rows say is true."""

    def __init__(self, task: TaskInfo) -> None:
        self.task = task
        self.loss = TASK_LOSSES[kind_of(task).problem]

    def modules(self) -> Sequence[nn.Module]:
        """Nothing but the model is trained."""
        return ()

    def identity(self) -> str:
        """The task."""
        return self.task.model_dump_json()

    def begin(self, progress: float) -> None:
        """The loss stays the same all the way."""

    def is_selectable(self) -> bool:
        """From the first update on."""
        return True

    def seconds_cached(self) -> float:
        """Every epoch takes as long."""
        return 0.0

    def teachers(self) -> Sequence[PreTrainedModel]:
        """None."""
        return ()

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """The task's one loss."""
        return {TASK: self.loss.function(forward(model, batch), batch, self.task)}


def forward(model: PreTrainedModel, batch: Batch) -> Mapping[str, Tensor]:
    """Run the arrays that the model's family takes; the answers beside them are for the losses."""
    inputs = family_of(model).inputs
    outputs: Mapping[str, Tensor] = model(**{name: value for name, value in batch.items() if name in inputs})
    return outputs
