"""What kinds share whose model makes one embedding of each text, to be compared with those of other texts."""

from typing import Any

import numpy as np

from compress.losses import OutputForm
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Array, Arrays, Script
from compress.tasks.kind import Kind
from compress.tasks.kinds.text_kind import model_output

OUTPUT = "sentence_embedding"


class EmbeddingKind(Kind):
    """A kind whose model reads one text at a time and returns its embedding, a vector of length one."""

    head = "sentence-embedding"
    outputs = OutputForm("compress.losses.tensor_ops.logit_views:embedding_view", None)
    hub_pipeline = "sentence-similarity"
    sentence_transformers = "SentenceTransformer"

    def keep_row_together(self, task: TaskInfo) -> bool:
        """Return true: the texts of a row are compared with each other."""
        return True

    def script(self, task: TaskInfo) -> Script:
        """Print the cosines of all texts."""
        return Script(
            "the cosine of each text with every other",
            loop="for text in sys.argv[1:]:",
            before=("vectors = []",),
            each=("vectors.append(outputs[0][0] / numpy.linalg.norm(outputs[0][0]))",),
            after=("print(numpy.array(vectors) @ numpy.array(vectors).T)",),
        )

    def decode(self, outputs: Arrays, batch: Arrays, task: TaskInfo) -> list[Array]:
        """Return the embedding of each example (D,)."""
        return list(model_output(outputs, OUTPUT, (None, None), "texts", np.float32))


def embeddings_to_json(embeddings: Array) -> list[dict[str, Any]]:
    """Return `{"embedding": [0.03, …]}` for each text."""
    return [{"embedding": [float(value) for value in vector]} for vector in embeddings]
