"""What every kind that answers one text or a pair shares: examples, padding, a check of what the model gave back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import ModelError, UsageError
from compress.model_info import TaskInfo
from compress.tasks.base import Arrays, Encode, Encoding, Example, Kind, Row, TaskInput
from compress.tasks.decoding.window_pooling import pooled


class TextKind(Kind):
    """A kind whose rows are one text or a pair, with one answer for all of it."""

    head = "sequence-classification"
    fields: tuple[str, ...] = ("text", "text_pair", "label")
    perturbable: tuple[str, ...] = ("text", "text_pair")
    settings: tuple[str, ...] = ("long", "overlap", "max_windows")

    def to_input(self, row: Row) -> TaskInput:
        """The text, or both."""
        return str(row["text"]) if row.get("text_pair") is None else (str(row["text"]), str(row["text_pair"]))

    def from_input(self, given: TaskInput, task: TaskInfo) -> Row:
        """The texts by their fields."""
        parts = texts_of(given, task)
        return {"text": parts[0], "text_pair": parts[1] if len(parts) > 1 else None}

    def output_count(self, task: TaskInfo) -> int:
        """One more where windows are weighed: how much each has to say."""
        return super().output_count(task) + (task.long == "attention")

    def keep_row_together(self, task: TaskInfo) -> bool:
        """The windows of a text have one label between them."""
        return self.in_windows(task)

    def examples(self, row: Row, task: TaskInfo, encode: Encode) -> list[Example]:
        """One example a row, or one a window where long texts are not cut.

        The first text of a pair is whole in every window, of which it takes no more than half.
        """
        text, pair = row["text"], row.get("text_pair")
        if not self.in_windows(task):
            return [example_of(encode(text, pair, task.max_length), row)]
        if pair is not None:
            text = shortened(text, task.max_length // 2, encode)
        windows = encode.windows(text, pair, task.max_length, task.overlap, task.max_windows)
        return [example_of(window, row) for window in windows]

    def decode(self, outputs: Arrays, batch: Arrays, task: TaskInfo) -> list[NDArray[Any]]:
        """The logits of each example."""
        return list(check_logits(outputs, width=self.output_count(task)))

    def logits(self, decided: Sequence[NDArray[Any]], counts: Sequence[int], task: TaskInfo) -> NDArray[np.float64]:
        """The logits of each row (rows, labels)."""
        return pooled(np.stack(decided), counts, task.long)


def parts_of(given: TaskInput) -> tuple[str, ...]:
    """What was handed over, one text or several, as several; it may be something else, which the kinds refuse."""
    return tuple(given) if isinstance(given, (tuple, list)) else (given,)


def texts_of(given: TaskInput, task: TaskInfo) -> tuple[str, ...]:
    """The texts that were handed over: as many as the task has columns, or a UsageError."""
    parts = parts_of(given)
    if len(parts) != len(task.text) or not all(isinstance(part, str) for part in parts):
        expected = "one text" if len(task.text) == 1 else f"{len(task.text)} texts ({', '.join(task.text)})"
        raise UsageError(f"{task.name} reads {expected}; got {given!r}.")
    return parts


def example_of(pieces: Encoding, row: Row) -> Example:
    """Pieces, and the row's label where it has one (a row to predict has none)."""
    example: Example = {"input_ids": pieces.input_ids, "token_type_ids": pieces.token_type_ids}
    if row.get("label") is not None:
        example["label"] = row["label"]
    return example


def shortened(text: str, most: int, encode: Encode) -> str:
    """As much of a text as ``most`` pieces hold."""
    window = encode.windows(text, None, most + 2, 0, 1)[0]  # two special pieces around it
    return text[: max(last for _, last in window.spans or ())] if window.truncated else text


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


def check_logits(outputs: Arrays, width: int | None = None) -> NDArray[np.float64]:
    """The model's logits in double precision; one that is not a number would otherwise win every argmax unseen."""
    logits: NDArray[Any] = np.asarray(outputs["logits"], dtype=np.float64)
    if width is not None and logits.shape[-1] != width:
        raise ModelError(f"the model gives {logits.shape[-1]} outputs a row where this task expects {width}.")
    if not np.isfinite(logits).all():
        broken = int((~np.isfinite(logits)).any(axis=-1).sum())
        raise ModelError(f"the model's output is not a number for {broken} of {len(logits)} rows.")
    return logits
