"""An update with something in it that is no number: its rows are asked one by one which of them broke it."""

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

SHOWN = 10
"""Row numbers of each set that a message holds."""

Breaks = Callable[[NDArray[np.int64]], bool]
"""Whether a batch of these examples gives a loss that is no number."""


def find_nonfinite(losses: Mapping[str, float], norm: float) -> str | None:
    """What of an update is no number, in words; None where all is well."""
    for name, loss in losses.items():
        if not math.isfinite(loss):
            called = "the task's loss" if name == TASK else f"the loss {name}"
            return f"{called} became {loss}"
    return None if math.isfinite(norm) else f"the gradient's norm became {norm}"


def nan_error(
    what: str, update: int, saved: int, examples: Examples, gradients: Gradients, settings: Training
) -> CompressError:
    """The error that names who broke this update; ``saved`` is the one after which the last checkpoint was."""
    batches = gradients.plan.batches(update)
    rows = find_nan_rows(examples, batches, gradients.is_nonfinite)
    teacher = find_nan_teacher(gradients.objective.teachers(), map(gradients.batches, batches))
    kept = f"the checkpoint is kept that was saved after update {saved}"
    return CompressError(
        f"{what} at update {update + 1} of {gradients.plan.total}, {rows}; "
        + (f"{teacher} itself answers what is no number; " if teacher else "")
        + f"{kept if saved else 'no checkpoint was due before'}.",
        hint=_advice(teacher, settings),
    )


def _advice(teacher: str | None, settings: Training) -> str:
    if teacher:
        return f"look at {teacher}, or take another; precision: fp32 helps where only its numbers are too large"
    weight = "a smaller weight for this loss, " if isinstance(settings, Distill) else ""
    return f"look at these rows; or try a smaller learning_rate, {weight}precision: fp32"


def find_nan_rows(examples: Examples, batches: Sequence[NDArray[np.int64]], breaks: Breaks) -> str:
    """In words: the rows that break a loss by themselves, or those among which it broke.

    One by one they may all be well: what a random dropout or the company of other rows broke is not found so.
    """
    every = np.concatenate(batches)
    alone = np.array([index for index in every if breaks(np.array([index]))], dtype=np.int64)
    return f"in {_told(examples, alone)}" if len(alone) else f"somewhere in {_told(examples, every)}"


def find_nan_teacher(teachers: Sequence[PreTrainedModel], batches: Iterable[Batch]) -> str | None:
    """The first teacher that itself answers what is no number: the student has no part in that."""
    for batch in batches:
        for number, teacher in enumerate(teachers, 1):
            nn.Module.to(teacher, batch["input_ids"].device)
            with torch.no_grad():
                answers = forward(teacher, batch).values()
            if not all(bool(torch.isfinite(answer).all()) for answer in answers):
                return f"the teacher {teacher.name_or_path or number}"
    return None


def _told(examples: Examples, indices: NDArray[np.int64]) -> str:
    """Row numbers from 1, set by set: ``rows 3, 17 and 22 more of train, row 3 of unlabelled``."""
    found: dict[str, set[int]] = {"train": set(), "unlabelled": set(), "augmented": set()}
    for origin in examples.origins(indices):
        found[origin.of].add(origin.row + 1)
    train, unlabelled, copied = (_numbers(sorted(rows)) for rows in found.values())
    told = (
        train and f"{train} of train",
        unlabelled and f"{unlabelled} of unlabelled",
        copied and f"augmented copies of {copied} of train",
    )
    return ", ".join(each for each in told if each)


def _numbers(rows: Sequence[int]) -> str:
    if not rows:
        return ""
    shown, more = ", ".join(str(row) for row in rows[:SHOWN]), len(rows) - SHOWN
    return f"{'row' if len(rows) == 1 else 'rows'} {shown}{f' and {more} more' if more > 0 else ''}"
