"""Which answers a student follows: those that its rows bring along, or else a model's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from compress.losses.tensor_ops.probability_logits import logits_from_probabilities

if TYPE_CHECKING:
    from compress.model_info import TaskInfo

SOFT_LABELS_KEY = "soft_labels"
"""Of a batch: float32 (examples, classes), the same for all windows of a row; NaN in rows that bring none."""


def has_soft_labels(batch: Mapping[str, Tensor]) -> Tensor:
    """Which examples (examples,) have probabilities of their own; told without a wait where they are on the host."""
    return batch[SOFT_LABELS_KEY].isfinite().all(dim=-1)


def select_soft_targets(
    theirs: Mapping[str, Tensor], batch: Mapping[str, Tensor], task: TaskInfo, problem: str
) -> Mapping[str, Tensor]:
    """The outputs to follow: of rows that bring probabilities the outputs that would mean these, else the teacher's.

    Args:
        theirs: the teacher's outputs; empty where every row has_soft_labels its own.
        batch: with `soft_labels`.
        task: how windows are pooled.
        problem: the task kind's.
    """
    device = batch["input_ids"].device
    given = logits_from_probabilities(batch[SOFT_LABELS_KEY].to(device, non_blocking=True), task, problem)
    own = has_soft_labels(batch)[:, None].to(device, non_blocking=True)
    return {
        name: torch.where(own, answer, theirs[name].float()) if theirs else answer for name, answer in given.items()
    }
