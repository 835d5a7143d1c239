"""The model's side: the batch it reads, the head it has, and how its outputs are reduced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from compress.batch_arrays import ATTENTION_MASK, EXTRA_COLUMNS, INPUT_ARRAYS, BatchArray
from compress.model_info import TaskInfo
from compress.tasks.base import Array, Arrays, Example


class ModelInterface(ABC):
    """What a kind needs of a model, and what it makes of a batch's outputs."""

    head: str
    """Key of models/heads.py: the model class and its outputs (`sequence-classification`)."""
    problem: str
    """Key of the task's own loss (`losses/__init__.py`): which outputs are compared with which labels, and how
    distillation compares two models' outputs."""
    batch_arrays: tuple[BatchArray, ...]
    """The arrays of a batch beyond the model's inputs, made of the fields of this kind's examples."""
    example: str = "row"
    """What one example is to a reader: a row, or an item that a row holds several of (a choice)."""
    hub_pipeline: str
    """The Hugging Face Hub's name for what the kind does (`pipeline_tag`)."""
    searches: bool = False
    """Predictions are documents of the role (`data/splits/prepare_splits.py`), which are embedded once."""

    def output_count(self, task: TaskInfo) -> int:
        """Return the number of outputs of the head: one per label, or a single one."""
        return max(1, len(task.labels))

    def keep_row_together(self, task: TaskInfo) -> bool:
        """Return whether a row's examples must share a training batch, because one loss covers all of them."""
        return False

    def arrays(self) -> Mapping[str, BatchArray]:
        """Return the declarations of all arrays that `collate` may produce, by name."""
        return {array.name: array for array in (*INPUT_ARRAYS, ATTENTION_MASK, *self.batch_arrays, *EXTRA_COLUMNS)}

    def collate(self, examples: Sequence[Example], pad_id: int) -> Arrays:
        """Return one padded batch: `input_ids`, `attention_mask`, `token_type_ids`, and an array per example field."""
        return collate(examples, self.arrays().values(), pad_id)

    @abstractmethod
    def decode(self, outputs: Arrays, batch: Arrays, task: TaskInfo) -> list[Array]:
        """Reduce a batch's outputs to what predictions need, an array per example; ``batch`` is from `collate`.

        Outputs as long as texts are so never held for all rows.
        """

    def search(self, queries: Array, documents: Array, task: TaskInfo) -> Array:
        """For kinds that search: return the documents retrieved for each row, from the embeddings of both."""
        raise NotImplementedError


def collate(examples: Sequence[Example], arrays: Iterable[BatchArray], pad_id: int) -> Arrays:
    """Return the ``arrays`` whose fields the examples have, padded, and the attention mask."""
    fields = [array for array in arrays if array.source in examples[0]]
    batch = {
        array.name: stack_field([example[array.source] for example in examples], array, pad_id) for array in fields
    }
    lengths = np.asarray([len(example["input_ids"]) for example in examples])
    mask = np.arange(lengths.max()) < lengths[:, None]
    return {**batch, ATTENTION_MASK.name: mask.astype(ATTENTION_MASK.dtype)}


def stack_field(values: Sequence[Any], array: BatchArray, pad_id: int) -> Array:
    """Return one field of all examples as an array, padded on the right if it is per token."""
    if array.per == "example":
        return np.asarray(values, dtype=array.dtype)
    return pad_rows(values, pad_id if array.fill is None else array.fill, array.dtype)


def pad_rows(rows: Sequence[Any], fill: float, dtype: DTypeLike) -> Array:
    """Return rows of different lengths as one array (rows, longest), padded on the right."""
    padded = np.full((len(rows), max(map(len, rows), default=0)), fill, dtype=dtype)
    for line, row in zip(padded, rows, strict=True):
        line[: len(row)] = row
    return padded


def token_fills(arrays: Iterable[BatchArray], pad_id: int) -> dict[str, int]:
    """Return the padding value of each array that is as long as the texts."""
    return {array.name: pad_id if array.fill is None else array.fill for array in arrays if array.per == "token"}
