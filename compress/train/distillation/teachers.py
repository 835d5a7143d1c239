"""Teachers: one model, or an ensemble of several; and whether models fit each other.

Teachers and students process the same batches, so they need the same vocabulary; a student may have a part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.data.tokenizer import check_length
from compress.errors import ModelError
from compress.families import max_positions
from compress.model_folder.model_info import TaskInfo
from compress.models.checkpoint_task import CheckpointTask, checkpoint_task, fits_task, output_names
from compress.models.embedding_model import SentenceEmbedding, embedding_size
from compress.models.encoder_parts import Captured, LayerParts, capture_parts, word_embeddings
from compress.models.fetch import fetch
from compress.models.heads import Head, head_for
from compress.models.load_save import load_model, load_tokenizer, read_config
from compress.recipe.distill_schema import Distill, FurtherTeacher
from compress.train.objective import Batch, forward_teacher

ModelOutputs = Mapping[str, Tensor]
"""Model outputs by name: `logits`, `start_logits`, `sentence_embedding` …"""

EMBEDDING = "sentence_embedding"

MAX_PADDING = 128
"""Embedding tables are padded to a multiple of at most this number, for fast kernels."""

STUDENT_HINT = "use a student that was trained with the teacher's tokenizer, or specify a shape instead"
TEACHERS_HINT = "use teachers that were trained with the same tokenizer"


class Teacher:
    """One model, or several with averaged outputs and the layers of the first; in eval mode, without gradients.

    Outputs are the weighted mean of the models' logits, example by example; of embeddings, the weighted mean of the
    unit vectors, normalized again.
    """

    def __init__(self, members: Iterable[tuple[PreTrainedModel, float]]) -> None:
        """``members`` are models with weights; the first is the recipe's teacher."""
        given = list(members)
        total = sum(weight for _, weight in given)
        self.members = [(model, weight / total) for model, weight in given]
        self.models = [model for model, _ in given]
        self.model = self.models[0]
        for model in self.models:
            model.train(False)

    def __call__(self, batch: Batch, wanted: LayerParts) -> tuple[ModelOutputs, Captured]:
        """Return outputs, and the ``wanted`` parts of each layer (`EMBEDDINGS`, or from 0), on the batch's device."""
        for model in self.models:
            on_device_of(model, batch["input_ids"])
        with torch.no_grad():
            with capture_parts(self.model, wanted) as captured:
                outputs = forward_teacher(self.model, batch)
            return (self._mean(outputs, batch) if len(self.members) > 1 else outputs), captured

    def _mean(self, first: ModelOutputs, batch: Batch) -> ModelOutputs:
        (_, share), *others = self.members
        sums = {name: share * output.float() for name, output in first.items()}
        for model, weight in others:
            for name, output in forward_teacher(model, batch).items():
                sums[name] += weight * output.float()
        return {name: F.normalize(mean, dim=-1) if name == EMBEDDING else mean for name, mean in sums.items()}

    def identity(self) -> str:
        """Return a digest of all weights, including the heads; of several models, with their shares."""
        digests = [f"{weight:g} {weights_digest(model)}" for model, weight in self.members]
        return " + ".join(digests) if len(digests) > 1 else weights_digest(self.model)

    def uncached(self) -> Teacher:
        """Return a teacher that computes its outputs every time."""
        return self

    def begin(self) -> None:
        """Prepare an update; called by all processes of a training, whether or not they need the teacher in it."""


TeacherCacheFactory = Callable[[Teacher, LayerParts], Teacher]
"""Wraps a teacher, given all layer parts that any phase needs, so that its outputs are cached on disk."""


def on_device_of(teacher: PreTrainedModel, tensor: Tensor) -> PreTrainedModel:
    """Move a teacher to the device of a tensor, if it is elsewhere, and return it."""
    if teacher.device != tensor.device:
        nn.Module.to(teacher, tensor.device)
    return teacher


def weights_digest(model: PreTrainedModel) -> str:
    """Return a digest of all weights of a model."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def further_teachers(
    settings: Distill, first: PreTrainedModel, task: TaskInfo, tokenizer: PreTrainedTokenizerBase
) -> list[tuple[PreTrainedModel, float]]:
    """Load the further teachers of the settings with their weights, checked to be compatible with ``first``."""
    return [(_further(named, first, task, tokenizer), named.weight) for named in settings.teachers]


def _further(
    named: FurtherTeacher, first: PreTrainedModel, task: TaskInfo, tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    """Load a further teacher, with outputs in the task's label order."""
    who, folder = _who(named), check_further_teacher(named, task)
    config = read_config(folder)
    check_same_vocabulary(who, load_tokenizer(folder), tokenizer, TEACHERS_HINT)
    check_length(task.max_length, max_positions(config.to_dict(), config.pad_token_id or 0), named.source)
    model = load_model(folder, task)
    if isinstance(model, SentenceEmbedding) and embedding_size(model) != embedding_size(first):
        raise ModelError(
            f"{who} has embeddings of width {embedding_size(model)}, the first teacher {embedding_size(first)}."
        )
    return model


def check_further_teacher(named: FurtherTeacher, task: TaskInfo) -> Path:
    """Return the folder of a further teacher; raises ModelError if its labels do not fit the task."""
    folder = fetch(named.source, named.revision)
    check_teacher_labels(_who(named), checkpoint_task(folder, read_config(folder)), task)
    return folder


def _who(named: FurtherTeacher) -> str:
    return f"distill.teachers: {named.source}"


def check_teacher_labels(who: str, saved: CheckpointTask, task: TaskInfo) -> None:
    """Refuse a checkpoint with another head, or with other labels."""
    if fits_task(saved, task):
        return
    check_teacher_head(who, saved, head_for(task))
    raise ModelError(
        f"{who} does not fit {task.name}: its labels are {', '.join(saved.names)}; "
        f"expected {', '.join(output_names(task))}, in any order.",
        hint="teachers of an ensemble must be trained on the same labels",
    )


def check_teacher_head(who: str, saved: CheckpointTask, expected: Head) -> None:
    """Refuse a checkpoint that was trained with another kind of head."""
    if saved.head is not expected:
        actual = saved.head.name if saved.head else "unknown"
        raise ModelError(f"{who} was trained for another task kind: its head is {actual}, expected {expected.name}.")


def check_same_vocabulary(
    who: str, actual: PreTrainedTokenizerBase, expected: PreTrainedTokenizerBase, hint: str
) -> None:
    """Refuse a tokenizer whose vocabulary differs from the teacher's in any token or id."""
    theirs, own = actual.get_vocab(), expected.get_vocab()
    if theirs == own:
        return
    token = min(theirs.items() ^ own.items(), key=lambda entry: (entry[1], entry[0]))[0]
    raise ModelError(
        f"{who} has another vocabulary ({len(theirs)} tokens) than the teacher ({len(own)} tokens), but both process "
        f"the same batches: the id of {token!r} is {theirs.get(token, 'missing')}, "
        f"in the teacher's {own.get(token, 'missing')}.",
        hint=hint,
    )


def ids_in_teacher(
    who: str, student: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase, hint: str
) -> NDArray[np.int64] | None:
    """Return the teacher's id for each id of a student whose vocabulary is a part of the teacher's (pieces,).

    None where both have the same vocabulary; others are refused.
    """
    own, theirs = student.get_vocab(), teacher.get_vocab()
    if not own.keys() < theirs.keys():
        check_same_vocabulary(who, student, teacher, hint)
        return None
    table = np.zeros(max(own.values()) + 1, np.int64)
    table[list(own.values())] = [theirs[piece] for piece in own]
    return table


def check_embedding_counts(
    models: Sequence[PreTrainedModel], tokenizer: PreTrainedTokenizerBase, own: PreTrainedTokenizerBase | None = None
) -> None:
    """Check models in memory: an embedding for every token, and equal counts except for padding.

    The first is the teacher, the last the student, which may have a tokenizer of its ``own``.
    """
    names = ["the teacher", *(f"teacher {number}" for number in range(2, len(models))), "the student"]
    counts = [word_embeddings(model).num_embeddings for model in models]
    tokenizers = [tokenizer] * (len(models) - 1) + [own or tokenizer]
    for who, count, each in zip(names, counts, tokenizers, strict=True):
        if count < len(each):
            raise ModelError(
                f"{who} has {count} token embeddings, but the tokenizer has {len(each)} tokens: "
                "the model was trained with another one."
            )
        if each is tokenizer:
            check_embedding_count(who, count, counts[0])


def check_embedding_count(who: str, actual: int, expected: int) -> None:
    """Refuse a number of embeddings that differs from the teacher's by more than padding."""
    if abs(actual - expected) >= MAX_PADDING:
        raise ModelError(
            f"{who} has {actual} token embeddings and the teacher {expected}: they were trained with different "
            "tokenizers, but both process the same batches."
        )
