"""What kinds share whose model makes one vector of each text, to be compared with those of other texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import ModelError
from compress.model_info import TaskInfo
from compress.tasks.base import Arrays, Encode, Example, Kind
from compress.tasks.kinds.text_kind import collate_text

OUTPUT = "sentence_embedding"

FIELDS: Mapping[str, tuple[str, type[np.generic]]] = {
    "label": ("labels", np.float32),
    "part": ("part", np.int64),
    "scores": ("scores", np.float32),
}
"""Numbers that an example may hold: what they are called in a batch, and their type there."""


class EmbeddingKind(Kind):
    """A kind whose model reads one text at a time and gives its embedding, a vector of length one."""

    head = "sentence-embedding"

    def keep_row_together(self, task: TaskInfo) -> bool:
        """The texts of a row are compared with each other."""
        return True

    def collate(self, examples: Sequence[Example], pad_id: int) -> Arrays:
        """A padded batch, and the numbers that the examples hold, one each."""
        numbers = {
            name: np.asarray([example[field] for example in examples], dtype=dtype)
            for field, (name, dtype) in FIELDS.items()
            if field in examples[0]
        }
        return {**collate_text(examples, pad_id), **numbers}

    def decode(self, outputs: Arrays, batch: Arrays, task: TaskInfo) -> list[NDArray[Any]]:
        """The embedding of each example (D,)."""
        return list(checked_embeddings(outputs))


def text_example(text: str, task: TaskInfo, encode: Encode, **numbers: float) -> Example:
    """The pieces of one text, and numbers such as its row's label."""
    pieces = encode(text, None, task.max_length)
    return {"input_ids": pieces.input_ids, "token_type_ids": pieces.token_type_ids, **numbers}


def checked_embeddings(outputs: Arrays) -> NDArray[np.float32]:
    """The embeddings; one that is not a number would be near to nothing, unseen."""
    if OUTPUT not in outputs:
        raise ModelError(f"the model gives {', '.join(outputs)} where this task expects {OUTPUT}.")
    found: NDArray[np.float32] = np.asarray(outputs[OUTPUT], dtype=np.float32)
    if found.ndim != 2:
        raise ModelError(f"the model gives embeddings of shape {found.shape} where one vector a text is expected.")
    broken = int((~np.isfinite(found)).any(axis=-1).sum())
    if broken:
        raise ModelError(f"the model's output is not a number for {broken} of {len(found)} texts.")
    return found


def readable_embeddings(embeddings: NDArray[Any]) -> list[dict[str, Any]]:
    """`{"embedding": [0.03, …]}` for each text."""
    return [{"embedding": [float(value) for value in vector]} for vector in embeddings]
