"""What kinds with one label for a text or a pair share: examples, padding, a check of the model's outputs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from compress.errors import ModelError, UsageError
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Array, Arrays, Encode, Example, Row, Rows, TaskInput
from compress.tasks.decoding import pool_window_logits
from compress.tasks.kind import Kind, ProbedAs


class TextKind(Kind):
    """A kind whose rows are one text or a pair, with one label for all of it."""

    head = "sequence-classification"
    probed_as: ProbedAs | None = "text"
    hub_pipeline = "text-classification"
    fields: tuple[str, ...] = ("text", "text_pair", "label")
    perturbable: tuple[str, ...] = ("text", "text_pair")
    settings: tuple[str, ...] = ("long", "overlap", "max_windows")

    def to_input(self, row: Row) -> TaskInput:
        """Return the text, or both."""
        return str(row["text"]) if row.get("text_pair") is None else (str(row["text"]), str(row["text_pair"]))

    def from_input(self, given: TaskInput, task: TaskInfo) -> Row:
        """Return the texts by field."""
        texts = column_texts(given, task)
        return {"text": texts[0], "text_pair": texts[1] if len(texts) > 1 else None}

    def output_count(self, task: TaskInfo) -> int:
        """Return one more output where windows are weighted: the weight of the window."""
        return super().output_count(task) + (task.long == "attention")

    def keep_row_together(self, task: TaskInfo) -> bool:
        """Return true for windows: those of a text share one label."""
        return self.in_windows(task)

    def examples(self, row: Row, task: TaskInfo, encode: Encode) -> list[Example]:
        """Return one example, or one per window where long texts are not cut.

        Every window holds the first text of a pair, cut to half of the window.
        """
        text, pair = row["text"], row.get("text_pair")
        if not self.in_windows(task):
            return [encode(text, pair, task.max_length).example(label=row.get("label"))]
        if pair is not None:
            text = truncate_text(text, task.max_length // 2, encode)
        windows = encode.windows(text, pair, task.max_length, task.overlap, task.max_windows)
        return [window.example(label=row.get("label")) for window in windows]

    def decode(self, outputs: Arrays, batch: Arrays, task: TaskInfo) -> list[Array]:
        """Return the logits of each example."""
        return list(model_output(outputs, "logits", (None, self.output_count(task)), "rows"))

    def logits(self, decoded: Sequence[Array], counts: Sequence[int], task: TaskInfo) -> NDArray[np.float64]:
        """Return the logits of each row (rows, labels)."""
        return pool_window_logits(np.stack(decoded), counts, task.long)


def as_tuple(given: TaskInput) -> tuple[str, ...]:
    """Return one text or several as a tuple; values that are no texts are left for the kinds to refuse."""
    return tuple(given) if isinstance(given, (tuple, list)) else (given,)


def check_texts(
    given: TaskInput, task: TaskInfo, least: int, most: int, expected: str, hint: str | None = None
) -> tuple[str, ...]:
    """Return the texts of an input, or raise a UsageError unless there are ``least`` to ``most`` of them."""
    texts = as_tuple(given)
    if not least <= len(texts) <= most or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{task.name} reads {expected}; got {given!r}.", hint=hint)
    return texts


def column_texts(given: TaskInput, task: TaskInfo) -> tuple[str, ...]:
    """Return the texts of an input, one for each column of the task."""
    count = len(task.text)
    expected = "one text" if count == 1 else f"{count} texts ({', '.join(task.text)})"
    return check_texts(given, task, count, count, expected)


def truncate_text(text: str, max_tokens: int, encode: Encode) -> str:
    """Return the start of a text, up to ``max_tokens`` tokens."""
    window = encode.windows(text, None, max_tokens + 2, 0, 1)[0]  # two special tokens around it
    return text[: max(end for _, end in window.spans or ())] if window.truncated else text


def model_output(
    outputs: Arrays, name: str, shape: tuple[int | None, ...], unit: str | None, dtype: type[np.generic] = np.float64
) -> Array:
    """Return an output of the model, or raise a ModelError for another shape (None: any size) or non-finite values.

    A NaN would otherwise win every argmax unnoticed.
    """
    if name not in outputs:
        raise ModelError(f"the model returns {', '.join(outputs)} where this task expects {name}.")
    values = np.asarray(outputs[name], dtype=dtype)
    if len(shape) != values.ndim or any(size not in (None, own) for size, own in zip(shape, values.shape, strict=True)):
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        raise ModelError(f"the model's {name} have the shape {values.shape} where this task expects ({sizes}).")
    if unit is not None:
        check_finite(values, unit)
    return values


def check_finite(values: Array, unit: str) -> None:
    """Raise a ModelError if any line of ``values`` (n, ...) holds NaN or infinity."""
    finite = np.isfinite(values)
    if not finite.all():
        broken = ~finite.reshape(len(values), -1).all(axis=1)
        raise ModelError(f"the model's output is NaN or infinite for {broken.sum()} of {len(values)} {unit}.")


def same_argmax(predictions: Array, others: Array) -> NDArray[np.bool_]:
    """Return in which rows the same column is the largest."""
    return predictions.argmax(axis=-1) == others.argmax(axis=-1)


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the softmax over the last axis; -inf has probability 0."""
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def label_column(rows: Rows, dtype: type[np.generic]) -> Array:
    """Return the labels of rows that have one number each."""
    return np.fromiter((row["label"] for row in rows), dtype=dtype, count=len(rows))
