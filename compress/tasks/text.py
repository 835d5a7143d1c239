"""What every kind that reads one text or a pair shares: examples, padding, and a check of what the model gave back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import ModelError
from compress.folder import TaskInfo
from compress.tasks.kind import Arrays, Encode, Example, Row


def text_example(row: Row, task: TaskInfo, encode: Encode) -> Example:
    """The pieces of a row's text or pair, and its label where it has one (a row to predict has none)."""
    pieces = encode(row["text"], row.get("text_pair"), task.max_length)
    example: Example = {"input_ids": pieces.input_ids, "token_type_ids": pieces.token_type_ids}
    if row.get("label") is not None:
        example["label"] = row["label"]
    return example


def pad(sequences: Sequence[Sequence[int]], value: int) -> NDArray[np.int64]:
    """Sequences side by side, filled up on the right to the longest with ``value``."""
    width = max(map(len, sequences))
    padded = np.full((len(sequences), width), value, dtype=np.int64)
    for line, sequence in zip(padded, sequences, strict=True):
        line[: len(sequence)] = sequence
    return padded


def collate_text(examples: Sequence[Example], pad_id: int) -> Arrays:
    """Pieces, mask and segments of a batch; the kinds add their labels."""
    ids = [example["input_ids"] for example in examples]
    lengths = np.asarray([len(pieces) for pieces in ids])
    padded = pad(ids, pad_id)
    return {
        "input_ids": padded,
        "attention_mask": (np.arange(padded.shape[1]) < lengths[:, None]).astype(np.int64),
        "token_type_ids": pad([example["token_type_ids"] for example in examples], 0),
    }


def stacked_labels(examples: Sequence[Example], dtype: type[np.generic]) -> Arrays:
    """`labels` as one array where the examples have them, else nothing."""
    if "label" not in examples[0]:
        return {}
    return {"labels": np.asarray([example["label"] for example in examples], dtype=dtype)}


def checked_logits(outputs: Arrays, width: int | None = None) -> NDArray[np.float64]:
    """The model's logits in double precision; one that is not a number would otherwise win every argmax unseen."""
    logits: NDArray[Any] = np.asarray(outputs["logits"], dtype=np.float64)
    if width is not None and logits.shape[-1] != width:
        raise ModelError(f"the model gives {logits.shape[-1]} outputs a row where this task expects {width}.")
    if not np.isfinite(logits).all():
        broken = int((~np.isfinite(logits)).any(axis=-1).sum())
        raise ModelError(f"the model's output is not a number for {broken} of {len(logits)} rows.")
    return logits
