"""Views of model outputs: the logits that a loss compares, and their weights in a mean over rows.

Task losses and distillation use the same views: distributions over classes, over token positions or over the choices of
a row.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from compress.losses.tensor_ops.row_groups import MASKED_LOGIT, RowGroups, Tensors
from compress.losses.tensor_ops.vector_ops import to_float32


class LogitView(NamedTuple):
    """Logits of the predicted items: rows, tokens or texts."""

    logits: Tensor
    """(items, classes), at least in float32; `MASKED_LOGIT` where a class is not possible."""
    weight: Tensor
    """(items,): the weighted sum is a mean over each row's items, then over rows."""


def row_view(outputs: Tensors, batch: Tensors, pooling: str) -> tuple[LogitView, ...]:
    """Return one item per row: its logits pooled over windows (rows, classes)."""
    logits = pool_window_logits(to_float32(outputs["logits"]), RowGroups.from_batch(batch), pooling)
    return (LogitView(logits, _equal_weights(logits)),)


def pool_window_logits(logits: Tensor, groups: RowGroups, how: str) -> Tensor:
    """Return the logits of each row (rows, labels) from those of its windows (windows, outputs), with gradients.

    In numpy, `tasks/decoding.py` does the same.

    `mean` and `max` apply to each label separately. `attention` takes the last output of each window as its score and
    averages the other outputs with the softmax of these scores. `cut` has one window per row.
    """
    if how == "cut":
        return logits
    if how == "mean":
        return groups.mean(logits)
    if how == "max":
        return groups.pad(logits, -torch.inf).amax(dim=1)  # which stays what a probability of 0 is
    window_weights = groups.pad(logits[:, -1], MASKED_LOGIT).softmax(dim=1)
    return (groups.pad(logits[:, :-1]) * window_weights[:, :, None]).sum(dim=1)


def token_view(outputs: Tensors, batch: Tensors, pooling: str) -> tuple[LogitView, ...]:
    """Return one item per token (examples x tokens, classes); padding has weight zero."""
    weight = RowGroups.from_batch(batch).item_weights(batch["attention_mask"])
    return (LogitView(to_float32(outputs["logits"]).flatten(0, 1), weight.flatten()),)


def span_views(outputs: Tensors, batch: Tensors, pooling: str) -> tuple[LogitView, ...]:
    """Return start and end logits (examples, tokens), possible in the context, or at [CLS] for no answer."""
    possible = batch["context"].bool()
    possible = torch.cat([torch.ones_like(possible[:, :1]), possible[:, 1:]], dim=1)
    weight = RowGroups.from_batch(batch).example_weights()
    starts, ends = (
        to_float32(outputs[name]).masked_fill(~possible, MASKED_LOGIT) for name in ("start_logits", "end_logits")
    )
    return LogitView(starts, weight), LogitView(ends, weight)


def choice_view(outputs: Tensors, batch: Tensors, pooling: str) -> tuple[LogitView, ...]:
    """Return the scores of each row's choices (rows, largest number of choices)."""
    scores = RowGroups.from_batch(batch).pad(to_float32(outputs["logits"]).squeeze(-1), MASKED_LOGIT)
    return (LogitView(scores, _equal_weights(scores)),)


def embedding_view(outputs: Tensors, batch: Tensors, pooling: str) -> tuple[LogitView, ...]:
    """Return the embedding of each text (examples, width)."""
    return (LogitView(to_float32(outputs["sentence_embedding"]), RowGroups.from_batch(batch).example_weights()),)


def _equal_weights(rows: Tensor) -> Tensor:
    """Return equal weights of rows."""
    return rows.new_full((len(rows),), 1 / len(rows))
