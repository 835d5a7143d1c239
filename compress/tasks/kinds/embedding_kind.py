"""What kinds share whose model makes one embedding of each text, to be compared with those of other texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.batch_arrays import BatchArray
from compress.errors import ModelError
from compress.model_info import TaskInfo
from compress.tasks.base import Array, Arrays, Encode, Example
from compress.tasks.kind import Kind
from compress.tasks.kinds.text_kind import check_finite

OUTPUT = "sentence_embedding"


class EmbeddingKind(Kind):
    """A kind whose model reads one text at a time and returns its embedding, a vector of length one."""

    head = "sentence-embedding"
    hub_pipeline = "sentence-similarity"
    batch_arrays: tuple[BatchArray, ...]

    def keep_row_together(self, task: TaskInfo) -> bool:
        """Return true: the texts of a row are compared with each other."""
        return True

    def decode(self, outputs: Arrays, batch: Arrays, task: TaskInfo) -> list[Array]:
        """Return the embedding of each example (D,)."""
        return list(check_embeddings(outputs))


def text_example(text: str, task: TaskInfo, encode: Encode, **numbers: float) -> Example:
    """Return the tokens of one text, and numbers such as its row's label."""
    encoding = encode(text, None, task.max_length)
    return {"input_ids": encoding.input_ids, "token_type_ids": encoding.token_type_ids, **numbers}


def check_embeddings(outputs: Arrays) -> NDArray[np.float32]:
    """Return the embeddings, or raise a ModelError: a NaN would be near to nothing, unnoticed."""
    if OUTPUT not in outputs:
        raise ModelError(f"the model returns {', '.join(outputs)} where this task expects {OUTPUT}.")
    embeddings: NDArray[np.float32] = np.asarray(outputs[OUTPUT], dtype=np.float32)
    if embeddings.ndim != 2:
        raise ModelError(f"the model returns embeddings of shape {embeddings.shape}; one vector per text is expected.")
    check_finite(embeddings, "texts")
    return embeddings


def embeddings_to_json(embeddings: Array) -> list[dict[str, Any]]:
    """Return `{"embedding": [0.03, …]}` for each text."""
    return [{"embedding": [float(value) for value in vector]} for vector in embeddings]
