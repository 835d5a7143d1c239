"""Which decisions of a model another one repeats; those too close to survive rounding or quantizing are left out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from compress.model_info import TaskInfo
from compress.tasks import KINDS
from compress.tasks.base import Arrays

MARGIN = 0.02
"""Where the reference's logits are closer than this it has no decision that could be decisions_agree."""

SPANS = ("start_logits", "end_logits")
PER_TOKEN = (*SPANS, "last_hidden_state")
"""Outputs with a value per token in any model. Logits have one if they have three axes."""


def is_per_token(name: str, values: NDArray[np.float32]) -> bool:
    """Whether an output has a value per token, and so values at padding."""
    return name in PER_TOKEN or (name == "logits" and values.ndim == 3)


def without_padding(name: str, values: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return an output without its values at padding."""
    return values[mask == 1] if is_per_token(name, values) else values


def decisions_agree(expected: Arrays, got: Arrays, batch: Arrays, task: TaskInfo | None) -> NDArray[np.bool_]:
    """For every clear decision of the reference, whether the other model makes the same; empty without decisions.

    A row has one decision, or one for each label, each token, or each end of the answer. Numbers, embeddings, and the
    scores of choices and candidates are no decisions.
    """
    mask = batch["attention_mask"]
    if set(SPANS) <= expected.keys():
        ends = [(_mask_padding(expected[name], mask), _mask_padding(got[name], mask)) for name in SPANS]
        return np.concatenate([_same_argmax(*pair) for pair in ends])
    problem = KINDS[task.kind].problem if task else None
    if "logits" not in expected:
        return np.empty(0, dtype=bool)
    ours, theirs = (without_padding("logits", outputs["logits"], mask) for outputs in (expected, got))
    if task is not None and task.labels:  # windows append their weight after the labels
        ours, theirs = ours[..., : len(task.labels)], theirs[..., : len(task.labels)]
    if problem == "multi_label_classification":
        return np.asarray(((ours > 0) == (theirs > 0))[np.abs(ours) > MARGIN])
    if problem not in (None, "single_label_classification", "token_classification") or ours.shape[-1] < 2:
        return np.empty(0, dtype=bool)
    return _same_argmax(ours, theirs)


def _mask_padding(values: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return scores (rows, tokens) with minus infinity at padding."""
    return np.where(mask == 1, values, -np.inf)


def _same_argmax(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether the highest score of the last axis has the same index, where the reference has a clear one."""
    ordered = np.sort(ours, axis=-1)
    clear = ordered[..., -1] - ordered[..., -2] > MARGIN
    return np.asarray((ours.argmax(-1) == theirs.argmax(-1))[clear])
