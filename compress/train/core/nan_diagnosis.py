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
from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import Training
from compress.train.core.gradients import Gradients
from compress.train.objective import Batch, Examples, forward_teacher

MAX_SHOWN = 10
"""Row numbers per set in a message."""

SETS = {"train": "{} of train", "unlabelled": "{} of unlabelled", "augmented": "augmented copies of {} of train"}
"""How rows of each set are called."""

IsNonfinite = Callable[[NDArray[np.int64]], bool]
"""Whether the loss of a batch of these examples is NaN or infinite."""


def find_nonfinite(losses: Mapping[str, float], norm: float) -> str | None:
    """Return which value of an update is NaN or infinite, as text; None if none is."""
    values = {**{f"the loss {name}": loss for name, loss in losses.items()}, "the gradient's norm": norm}
    return next((f"{name} became {value}" for name, value in values.items() if not math.isfinite(value)), None)


def nan_error(
    what: str, update: int, saved: int, examples: Examples, gradients: Gradients, settings: Training
) -> CompressError:
    """Return the error that names the rows or the teacher responsible; ``saved`` is the last checkpoint's update."""
    batches = gradients.schedule.batches(update)
    rows = find_nan_rows(examples, batches, gradients.is_nonfinite)
    weight = "a smaller weight for this loss, " if isinstance(settings, Distill) else ""
    cause, hint = "", f"check these rows, or try a smaller learning_rate, {weight}precision: fp32"
    if teacher := find_nan_teacher(gradients.objective.teachers(), map(gradients.batches, batches)):
        cause = f"the outputs of {teacher} itself are not finite; "
        hint = f"check {teacher} or use another; precision: fp32 helps if its values only overflow"
    remains = f"the last checkpoint, saved after update {saved}, remains" if saved else "no checkpoint had been saved"
    return CompressError(
        f"{what} at update {update + 1} of {gradients.schedule.total}, {rows}; {cause}{remains}.", hint=hint
    )


def find_nan_rows(examples: Examples, batches: Sequence[NDArray[np.int64]], is_nonfinite: IsNonfinite) -> str:
    """Return as text the rows with a non-finite loss on their own, or else all rows of the update.

    A loss that is NaN only with dropout or together with other rows is not found row by row.
    """
    indices = np.concatenate(batches)
    alone = np.array([index for index in indices if is_nonfinite(np.array([index]))], dtype=np.int64)
    origins = examples.origins(alone if len(alone) else indices)
    parts = []
    for name, text in SETS.items():
        if rows := sorted({origin.row + 1 for origin in origins if origin.of == name}):
            more = f" and {len(rows) - MAX_SHOWN} more" if len(rows) > MAX_SHOWN else ""
            numbers = ", ".join(map(str, rows[:MAX_SHOWN]))
            parts.append(text.format(f"{'row' if len(rows) == 1 else 'rows'} {numbers}{more}"))
    return f"{'in' if len(alone) else 'somewhere in'} {', '.join(parts)}"


def find_nan_teacher(teachers: Sequence[PreTrainedModel], batches: Iterable[Batch]) -> str | None:
    """Return the first teacher whose own outputs are not finite."""
    for batch in batches:
        for number, teacher in enumerate(teachers, 1):
            nn.Module.to(teacher, batch["input_ids"].device)
            with torch.no_grad():
                outputs = forward_teacher(teacher, batch).values()
            if not all(bool(torch.isfinite(output).all()) for output in outputs):
                return f"the teacher {teacher.name_or_path or number}"
    return None
