"""Projection of the teacher's text embeddings to the width of the student's.

A student's embeddings are as wide as its teacher's unless the recipe sets a smaller width. Then the teacher's are
reduced to their principal components, which preserve most of its cosines, and the student is trained on those.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.data.encode import batches_by_length, encode_rows
from compress.data.tokenizer import TextTokenizer
from compress.errors import ModelError, UsageError
from compress.model_folder.model_info import TaskInfo
from compress.models.embedding_model import SentenceEmbedding, embedding_size, projection_of, with_projection
from compress.models.load_save import saved_embedding_size
from compress.recipe.student_schema import Student
from compress.tasks.base import Row
from compress.train.core.distributed import current_processes, returned
from compress.train.core.training_data import BATCH, predict_function

SAMPLE = 10_000
"""Training rows on which the components are fitted."""


def match_student_embedding(
    student: Student, teacher: PreTrainedModel, rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer
) -> PreTrainedModel:
    """Return the teacher with embeddings of the width of the recipe's student.

    That is the recipe's width, else that of the student's checkpoint if it is an embedding model no wider than the
    teacher, else the teacher's.
    """
    widest = embedding_size(teacher) if isinstance(teacher, SentenceEmbedding) else 0
    check_embedding_width(student, task.kind, widest)
    if not widest:
        return teacher
    own = saved_embedding_size(student.source, student.revision) if student.source else None
    return reduce_embedding_width(teacher, student.embedding or min(own or widest, widest), rows, task, tokens)


def check_embedding_width(student: Student, kind: str, widest: int | None) -> None:
    """Refuse an embedding width for a task without embeddings (``widest`` is 0), or above the teacher's, if known."""
    if student.embedding is None or widest is None:
        return
    if widest == 0:
        raise UsageError(
            f"student.embedding: {student.embedding} sets an embedding width, but {kind} has no embeddings.",
            hint="remove it; student.hidden sets the width of the layers",
        )
    _check_width(student.embedding, widest)


def match_embedding_width(
    student: PreTrainedModel, teacher: PreTrainedModel, rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer
) -> PreTrainedModel:
    """Return the teacher with embeddings of the width of an existing student."""
    both = isinstance(teacher, SentenceEmbedding) and isinstance(student, SentenceEmbedding)
    return reduce_embedding_width(teacher, embedding_size(student), rows, task, tokens) if both else teacher


def reduce_embedding_width(
    teacher: PreTrainedModel, size: int, rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer
) -> PreTrainedModel:
    """Return the teacher if its embeddings have this width, else a copy projected to its principal components."""
    if size == embedding_size(teacher):
        return teacher
    _check_width(size, embedding_size(teacher))
    components = principal_components(embeddings(teacher, rows, task, tokens), size).to(teacher.device, teacher.dtype)
    before = projection_of(teacher)
    return with_projection(teacher, components if before is None else components @ before)


def _check_width(size: int, widest: int) -> None:
    if size > widest:
        raise ModelError(
            f"the student's embedding width {size} exceeds the teacher's ({widest}).",
            hint=f"set student.embedding to {widest} or less",
        )


def embeddings(
    model: PreTrainedModel, rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer
) -> NDArray[np.float32]:
    """Return a model's embeddings of all texts of up to `SAMPLE` rows, evenly spaced."""
    indices = np.unique(np.linspace(0, len(rows) - 1, min(SAMPLE, len(rows))).astype(int))
    encoded = encode_rows(rows, task, tokens)
    chosen = encoded.examples_of(indices)
    batches = batches_by_length(encoded.lengths[chosen], BATCH)
    with returned(model):
        run = predict_function(nn.Module.to(model, current_processes().device).train(False))
        return np.concatenate([run(encoded.batch(chosen[batch]))["sentence_embedding"] for batch in batches])


def principal_components(vectors: NDArray[Any], size: int) -> Tensor:
    """Return the ``size`` orthogonal directions (size, width) that preserve most of the inner products of ``vectors``.

    Vectors are not centred: a linear projection cannot subtract a mean, and cosines depend on it. The sign makes the
    largest entry positive, so that the same vectors always give the same components.
    """
    exact = vectors.astype(np.float64)
    directions = np.linalg.eigh(exact.T @ exact)[1][:, ::-1][:, :size].T
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    return torch.from_numpy((directions * np.sign(largest)).astype(np.float32))
