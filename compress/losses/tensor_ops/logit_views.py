"""What answers are read from: for each problem the logits that compete, and what each of them weighs.

The task's own losses and distillation look at the same thing through the same view: distributions over classes, over
places in a text or over the choices of a row, each with its weight in a mean over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from compress.losses.tensor_ops.pool_window_logits import pool_window_logits
from compress.losses.tensor_ops.row_groups import MASKED_LOGIT, RowGroups
from compress.losses.tensor_ops.vector_ops import to_float32

if TYPE_CHECKING:
    from compress.model_info import TaskInfo

Tensors = Mapping[str, Tensor]


class LogitView(NamedTuple):
    """Things that are answered: rows, tokens or texts."""

    logits: Tensor
    """(things, classes) in single precision at least; what cannot be chosen is far below all else."""
    weight: Tensor
    """(things,): a weighted sum is a mean over each row's things, then over rows."""


def logit_views(problem: str, outputs: Tensors, batch: Tensors, task: TaskInfo) -> tuple[LogitView, ...]:
    """Every view of a model's outputs for one problem; where there are several, each says an equal part."""
    if problem not in VIEWS:
        raise ValueError(f"answers are compared for {', '.join(VIEWS)}; got {problem}")
    return VIEWS[problem](outputs, batch, task)


def row_view(outputs: Tensors, batch: Tensors, task: TaskInfo) -> tuple[LogitView, ...]:
    """One thing a row: the logits of a text, pool_window_logits over its windows (rows, classes)."""
    logits = pool_window_logits(to_float32(outputs["logits"]), RowGroups.of(batch), task.long)
    return (LogitView(logits, _evenly(logits)),)


def token_view(outputs: Tensors, batch: Tensors, task: TaskInfo) -> tuple[LogitView, ...]:
    """Each real token (examples x tokens, classes)."""
    weight = RowGroups.of(batch).weights(batch["attention_mask"])
    return (LogitView(to_float32(outputs["logits"]).flatten(0, 1), weight.flatten()),)


def span_views(outputs: Tensors, batch: Tensors, task: TaskInfo) -> tuple[LogitView, ...]:
    """Where an answer starts and where it ends (examples, tokens): in the context, or at [CLS] for no answer."""
    possible = batch["context"].bool()
    possible = torch.cat([torch.ones_like(possible[:, :1]), possible[:, 1:]], dim=1)
    weight = RowGroups.of(batch).of_examples()
    starts, ends = (
        to_float32(outputs[name]).masked_fill(~possible, MASKED_LOGIT) for name in ("start_logits", "end_logits")
    )
    return LogitView(starts, weight), LogitView(ends, weight)


def choice_view(outputs: Tensors, batch: Tensors, task: TaskInfo) -> tuple[LogitView, ...]:
    """The scores of each row's choices side by side (rows, most choices)."""
    scores = RowGroups.of(batch).padded(to_float32(outputs["logits"]).squeeze(-1), MASKED_LOGIT)
    return (LogitView(scores, _evenly(scores)),)


def embedding_view(outputs: Tensors, batch: Tensors, task: TaskInfo) -> tuple[LogitView, ...]:
    """The vector of each text (examples, width)."""
    return (LogitView(to_float32(outputs["sentence_embedding"]), RowGroups.of(batch).of_examples()),)


def _evenly(rows: Tensor) -> Tensor:
    """Each row the same."""
    return rows.new_full((len(rows),), 1 / len(rows))


VIEWS: Mapping[str, Callable[[Tensors, Tensors, TaskInfo], tuple[LogitView, ...]]] = {
    "single_label_classification": row_view,
    "multi_label_classification": row_view,
    "regression": row_view,
    "token_classification": token_view,
    "question_answering": span_views,
    "choice": choice_view,
    "ranking": choice_view,
    "similarity": embedding_view,
    "retrieval": embedding_view,
}
