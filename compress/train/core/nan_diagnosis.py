"""When a loss or gradient is NaN or infinite, finds the training rows responsible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedModel

from compress.errors import CompressError
from compress.recipe.training_schema import Distill, Training
from compress.train.core.gradients import Gradients
from compress.train.objective import TASK, Batch, Examples, forward

MAX_SHOWN = 10
"""Row numbers per set in a message."""

IsNonfinite = Callable[[NDArray[np.int64]], bool]
"""Whether the loss of a batch of these examples is NaN or infinite."""


def find_nonfinite(losses: Mapping[str, float], norm: float) -> str | None:
    """Return which value of an update is NaN or infinite, as text; None if none is."""
    for name, loss in losses.items():
        if not math.isfinite(loss):
            label = "the task's loss" if name == TASK else f"the loss {name}"
            return f"{label} became {loss}"
    return None if math.isfinite(norm) else f"the gradient's norm became {norm}"


def nan_error(
    what: str, update: int, saved: int, examples: Examples, gradients: Gradients, settings: Training
) -> CompressError:
    """Return the error that names the rows or the teacher responsible; ``saved`` is the last checkpoint's update."""
    batches = gradients.schedule.batches(update)
    rows = find_nan_rows(examples, batches, gradients.is_nonfinite)
    teacher = find_nan_teacher(gradients.objective.teachers(), map(gradients.batches, batches))
    checkpoint = f"the last checkpoint, saved after update {saved}, remains"
    return CompressError(
        f"{what} at update {update + 1} of {gradients.schedule.total}, {rows}; "
        + (f"the outputs of {teacher} itself are not finite; " if teacher else "")
        + f"{checkpoint if saved else 'no checkpoint had been saved'}.",
        hint=_advice(teacher, settings),
    )


def _advice(teacher: str | None, settings: Training) -> str:
    if teacher:
        return f"check {teacher} or use another; precision: fp32 helps if its values only overflow"
    weight = "a smaller weight for this loss, " if isinstance(settings, Distill) else ""
    return f"check these rows, or try a smaller learning_rate, {weight}precision: fp32"


def find_nan_rows(examples: Examples, batches: Sequence[NDArray[np.int64]], is_nonfinite: IsNonfinite) -> str:
    """Return as text the rows with a non-finite loss on their own, or else all rows of the update.

    A loss that is NaN only with dropout or together with other rows is not found row by row.
    """
    indices = np.concatenate(batches)
    alone = np.array([index for index in indices if is_nonfinite(np.array([index]))], dtype=np.int64)
    return f"in {_format_rows(examples, alone)}" if len(alone) else f"somewhere in {_format_rows(examples, indices)}"


def find_nan_teacher(teachers: Sequence[PreTrainedModel], batches: Iterable[Batch]) -> str | None:
    """Return the first teacher whose own outputs are not finite."""
    for batch in batches:
        for number, teacher in enumerate(teachers, 1):
            nn.Module.to(teacher, batch["input_ids"].device)
            with torch.no_grad():
                outputs = forward(teacher, batch).values()
            if not all(bool(torch.isfinite(output).all()) for output in outputs):
                return f"the teacher {teacher.name_or_path or number}"
    return None


def _format_rows(examples: Examples, indices: NDArray[np.int64]) -> str:
    """Return row numbers from 1 by set: ``rows 3, 17 and 22 more of train, row 3 of unlabelled``."""
    by_set: dict[str, set[int]] = {"train": set(), "unlabelled": set(), "augmented": set()}
    for origin in examples.origins(indices):
        by_set[origin.of].add(origin.row + 1)
    train, unlabelled, copied = (_numbers(sorted(rows)) for rows in by_set.values())
    parts = (
        train and f"{train} of train",
        unlabelled and f"{unlabelled} of unlabelled",
        copied and f"augmented copies of {copied} of train",
    )
    return ", ".join(part for part in parts if part)


def _numbers(rows: Sequence[int]) -> str:
    if not rows:
        return ""
    shown, more = ", ".join(str(row) for row in rows[:MAX_SHOWN]), len(rows) - MAX_SHOWN
    return f"{'row' if len(rows) == 1 else 'rows'} {shown}{f' and {more} more' if more > 0 else ''}"
