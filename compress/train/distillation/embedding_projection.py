"""One space for the embeddings of a teacher and its student, in which both can be compared and searched.

A student's embeddings are as wide as its teacher's unless the recipe asks for less. Then the teacher's own are reduced
to their principal components, which keep most of its cosines, and the student learns those.
"""

from __future__ import annotations

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
from compress.model_info import TaskInfo
from compress.models.embedding_model import SentenceEmbedding, embedding_size, projection_of, with_projection
from compress.models.load_save import saved_embedding_size
from compress.models.student.build_student import resolve_source
from compress.recipe.training_schema import Student
from compress.tasks.base import Row
from compress.train.core.distributed import Processes
from compress.train.evaluate import BATCH, predict_function

SAMPLE = 10_000
"""Training rows whose texts the components are fitted on."""


def match_student_embedding(
    student: Student, teacher: PreTrainedModel, rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer
) -> PreTrainedModel:
    """The teacher in the space of the student that a recipe describes.

    That is as wide as the recipe says, or as the student's own checkpoint where this is an embedding model and no wider
    than the teacher, or as the teacher's.
    """
    widest = embedding_size(teacher) if isinstance(teacher, SentenceEmbedding) else 0
    check_embedding_width(student, task.kind, widest)
    if not widest:
        return teacher
    own = saved_embedding_size(resolve_source(student.source), student.revision) if student.source else None
    return reduce_embedding_width(teacher, student.embedding or min(own or widest, widest), rows, task, tokens)


def check_embedding_width(student: Student, kind: str, widest: int | None) -> None:
    """Refuse a width of embeddings for a task that has none (``widest`` is 0), or beyond the teacher's, where known."""
    if student.embedding is None or widest is None:
        return
    if widest == 0:
        raise UsageError(
            f"student.embedding: {student.embedding} asks for the width of embeddings, and {kind} has none.",
            hint="leave it out; hidden sets the width of the student's layers",
        )
    _check_width(student.embedding, widest)


def match_embedding_width(
    student: PreTrainedModel, teacher: PreTrainedModel, rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer
) -> PreTrainedModel:
    """The teacher in the space of a student that is there already."""
    both = isinstance(teacher, SentenceEmbedding) and isinstance(student, SentenceEmbedding)
    return reduce_embedding_width(teacher, embedding_size(student), rows, task, tokens) if both else teacher


def reduce_embedding_width(
    teacher: PreTrainedModel, size: int, rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer
) -> PreTrainedModel:
    """The teacher itself where its embeddings are so wide, else a copy with the principal components of its own."""
    if size == embedding_size(teacher):
        return teacher
    _check_width(size, embedding_size(teacher))
    found = principal_components(embeddings(teacher, rows, task, tokens), size).to(teacher.device, teacher.dtype)
    before = projection_of(teacher)
    return with_projection(teacher, found if before is None else found @ before)


def _check_width(size: int, widest: int) -> None:
    if size > widest:
        raise ModelError(
            f"the student's embeddings would be {size} wide, and those of its teacher have {widest}.",
            hint=f"student.embedding: {widest} or less",
        )


def embeddings(
    model: PreTrainedModel, rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer
) -> NDArray[np.float32]:
    """A model's embeddings of all texts of up to `SAMPLE` rows, spread evenly over those that are there."""
    places = np.unique(np.linspace(0, len(rows) - 1, min(SAMPLE, len(rows))).astype(int))
    encoded = encode_rows((rows[int(index)] for index in places), task, tokens)
    nn.Module.to(model, Processes().device)
    model.train(False)
    run = predict_function(model)
    batches = batches_by_length(encoded.lengths, BATCH)
    return np.concatenate([run(encoded.batch(indices))["sentence_embedding"] for indices in batches])


def principal_components(vectors: NDArray[Any], size: int) -> Tensor:
    """The ``size`` orthogonal directions (size, width) that keep most of the inner products of ``vectors``.

    They are not centred, because a projection could not take the mean away and cosines count it. Each points to where
    its largest entry is positive, so that the same vectors always give the same components.
    """
    exact = vectors.astype(np.float64)
    directions = np.linalg.eigh(exact.T @ exact)[1][:, ::-1][:, :size].T
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    return torch.from_numpy((directions * np.sign(largest)).astype(np.float32))
