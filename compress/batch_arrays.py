"""The arrays of a batch, declared once: name, shape, padding, and whether they are copied to the training's device.

A task kind lists the arrays that its own examples add (`Kind.batch_arrays`); what every batch may hold is declared
here. A new column of train that goes beside a row's text (a weight, say) is one line in `EXTRA_COLUMNS`.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

LABELLED = "labelled"
"""1 where a row's label is the true one, 0 where it is a placeholder."""
SOFT_LABELS = "soft_labels"
"""Class probabilities given with a row of train; NaN in rows without."""
LABEL_WEIGHTS = "label_weights"
"""The weight of each label in the task's loss, in the shape of the labels; only where classes are weighted."""
INDEX = "index"
"""Which example each line of a batch is."""
GROUP = "group"
"""Which row of the batch each example belongs to, ascending from 0."""
TEACHER_IDS = "teacher_ids"
"""`input_ids` as the teacher's vocabulary numbers the same pieces; only where the student has a vocabulary of its own,
which is a part of the teacher's."""

PAD_ID = None
"""As `fill`: the tokenizer's padding id."""
IGNORED_LABEL = -100
"""The label of tokens that have none; losses ignore it."""


@dataclass(frozen=True)
class BatchArray:
    """One array of a batch."""

    name: str
    per: Literal["token", "example"]
    """`token`: (examples, tokens), padded with ``fill``; `example`: (examples, ...), the same for all windows of a row
    where it describes the row."""
    dtype: type[np.generic]
    fill: int | None = 0
    """Padding of arrays per token."""
    where: Literal["device", "host"] = "device"
    """`host`: read by Python code while training, which would have to wait for a device to copy it back."""
    field: str | None = None
    """The field of an example that it is made of, if it is called otherwise."""

    @property
    def source(self) -> str:
        """The field of an example that the array is made of."""
        return self.field or self.name


INPUT_ARRAYS = (
    BatchArray("input_ids", "token", np.int64, PAD_ID),
    BatchArray("token_type_ids", "token", np.int64),
)
"""What models read, made of each example's tokens."""
ATTENTION_MASK = BatchArray("attention_mask", "token", np.int64)
"""1 for tokens, 0 for padding: made of the examples' lengths."""
EXTRA_COLUMNS = (
    BatchArray(LABELLED, "example", np.float32, where="host"),
    BatchArray(SOFT_LABELS, "example", np.float32, where="host"),
)
"""Columns that rows of train may have beside the fields of their kind."""
BATCH_POSITIONS = (
    BatchArray(INDEX, "example", np.int64, where="host"),
    BatchArray(GROUP, "example", np.int64, where="host"),
)
"""Added when a batch is put together."""

EXTRA_NAMES = tuple(array.name for array in EXTRA_COLUMNS)


def extra_values(row: Any) -> dict[str, Any]:
    """Return a row's extra columns as its examples store them: numbers, or lists of numbers."""
    values = {name: row[name] for name in EXTRA_NAMES if name in row}
    return {**values, LABELLED: float(values[LABELLED])} if LABELLED in values else values
