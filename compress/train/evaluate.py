"""Scoring a torch module on encoded rows, by the task's own metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from compress.data.batches import Encoded, by_length
from compress.folder import TaskInfo
from compress.models.heads import head_named
from compress.tasks import kind_of
from compress.tasks.kind import Row
from compress.train.loop import Evaluate
from compress.train.objective import forward

BATCH = 64


def evaluator(encoded: Encoded, rows: Sequence[Row], task: TaskInfo) -> Evaluate:
    """A function that scores a model on these rows in the task's primary metric."""
    kind = kind_of(task)
    gold = kind.gold(rows)

    def score(model: PreTrainedModel) -> float:
        return float(kind.score(answers(model, encoded, task), gold, task)[task.metric])

    return score


def answers(model: PreTrainedModel, encoded: Encoded, task: TaskInfo) -> NDArray[Any]:
    """The model's answer to every row, in the rows' order."""
    kind = kind_of(task)
    names = head_named(kind.head).outputs
    found: dict[str, NDArray[Any]] = {}
    with torch.no_grad():
        for indices in by_length(encoded.lengths, BATCH):
            arrays = encoded.batch(indices)
            tensors = {name: torch.from_numpy(array).to(model.device) for name, array in arrays.items()}
            outputs = forward(model, tensors, labels=False)
            for name in names:
                values = outputs[name].float().cpu().numpy()
                found.setdefault(name, np.zeros((len(encoded), *values.shape[1:]), values.dtype))[indices] = values
    return kind.answers(found, encoded.counts.tolist())
