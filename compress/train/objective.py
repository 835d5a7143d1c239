"""What a training step minimises. The loop knows nothing of tasks or teachers: it asks for named losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.models.families import family_of
from compress.tasks.kind import Arrays

Batch = Mapping[str, Tensor]
Losses = dict[str, Tensor]
"""Already weighted; their sum is minimised. Each is a mean over the batch's rows."""


class Objective(Protocol):
    """A batch becomes named losses."""

    def modules(self) -> Sequence[nn.Module]:
        """What is trained beside the model and dropped afterwards (projections)."""
        ...

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """The losses of one batch; ``model`` is in training mode."""
        ...


class Examples(Protocol):
    """What training reads: `data.batches.Encoded`, or anything like it."""

    lengths: NDArray[np.int64]

    def batch(self, indices: NDArray[np.int64]) -> Arrays:
        """The padded arrays of these examples."""
        ...


class TaskObjective:
    """The task's own loss on the true labels, which transformers chooses by the config's problem_type."""

    def modules(self) -> Sequence[nn.Module]:
        """Nothing but the model is trained."""
        return ()

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """The loss under the name `task`."""
        return {"task": forward(model, batch, labels=True).loss}


def forward(model: PreTrainedModel, batch: Batch, *, labels: bool) -> Any:
    """Run the arrays that the model's family takes, with or without the labels beside them."""
    inputs = family_of(model).inputs
    return model(**{name: value for name, value in batch.items() if name in inputs or (labels and name not in TEXT)})


TEXT = ("input_ids", "attention_mask", "token_type_ids")
"""What a batch holds of the text; everything else in it is an answer."""
