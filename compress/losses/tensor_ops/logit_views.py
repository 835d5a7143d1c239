"""What answers are read from: for each problem the logits that compete, and what each of them weighs.

The task's own losses and distillation look at the same thing through the same view: distributions over classes, over
places in a text or over the choices of a row, each with its weight in a mean over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from compress.losses.tensor_ops.pool_window_logits import pooled
from compress.losses.tensor_ops.row_groups import FAR, Groups
from compress.losses.tensor_ops.vector_ops import lifted

if TYPE_CHECKING:
    from compress.model_info import TaskInfo

Tensors = Mapping[str, Tensor]


class View(NamedTuple):
    """Things that are answered: rows, tokens or texts."""

    logits: Tensor
    """(things, classes) in single precision at least; what cannot be chosen is far below all else."""
    weight: Tensor
    """(things,): a weighted sum is a mean over each row's things, then over rows."""


def views(problem: str, outputs: Tensors, batch: Tensors, task: TaskInfo) -> tuple[View, ...]:
    """Every view of a model's outputs for one problem; where there are several, each says an equal part."""
    if problem not in VIEWS:
        raise ValueError(f"answers are compared for {', '.join(VIEWS)}; got {problem}")
    return VIEWS[problem](outputs, batch, task)


def of_rows(outputs: Tensors, batch: Tensors, task: TaskInfo) -> tuple[View, ...]:
    """One thing a row: the logits of a text, pooled over its windows (rows, classes)."""
    logits = pooled(lifted(outputs["logits"]), Groups.of(batch), task.long)
    return (View(logits, _evenly(logits)),)


def of_tokens(outputs: Tensors, batch: Tensors, task: TaskInfo) -> tuple[View, ...]:
    """Each real token (examples x tokens, classes)."""
    weight = Groups.of(batch).weights(batch["attention_mask"])
    return (View(lifted(outputs["logits"]).flatten(0, 1), weight.flatten()),)


def of_places(outputs: Tensors, batch: Tensors, task: TaskInfo) -> tuple[View, ...]:
    """Where an answer starts and where it ends (examples, tokens): in the context, or at [CLS] for no answer."""
    possible = batch["context"].bool()
    possible = torch.cat([torch.ones_like(possible[:, :1]), possible[:, 1:]], dim=1)
    weight = Groups.of(batch).of_examples()
    starts, ends = (lifted(outputs[name]).masked_fill(~possible, FAR) for name in ("start_logits", "end_logits"))
    return View(starts, weight), View(ends, weight)


def of_choices(outputs: Tensors, batch: Tensors, task: TaskInfo) -> tuple[View, ...]:
    """The scores of each row's choices side by side (rows, most choices)."""
    scores = Groups.of(batch).padded(lifted(outputs["logits"]).squeeze(-1), FAR)
    return (View(scores, _evenly(scores)),)


def of_embeddings(outputs: Tensors, batch: Tensors, task: TaskInfo) -> tuple[View, ...]:
    """The vector of each text (examples, width)."""
    return (View(lifted(outputs["sentence_embedding"]), Groups.of(batch).of_examples()),)


def _evenly(rows: Tensor) -> Tensor:
    """Each row the same."""
    return rows.new_full((len(rows),), 1 / len(rows))


VIEWS: Mapping[str, Callable[[Tensors, Tensors, TaskInfo], tuple[View, ...]]] = {
    "single_label_classification": of_rows,
    "multi_label_classification": of_rows,
    "regression": of_rows,
    "token_classification": of_tokens,
    "question_answering": of_places,
    "choice": of_choices,
    "ranking": of_choices,
    "similarity": of_embeddings,
    "retrieval": of_embeddings,
}
