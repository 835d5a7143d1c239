"""Teachers: one model, or an ensemble of several."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.data.tokenizer import check_length
from compress.errors import ModelError
from compress.families import max_positions
from compress.model_info import TaskInfo
from compress.models.checkpoint_task import CheckpointTask, checkpoint_task, fits_task, output_names
from compress.models.embedding_model import SentenceEmbedding, embedding_size
from compress.models.fetch import fetch
from compress.models.forward_hooks import Captured, LayerParts, capture_parts
from compress.models.heads import Head, head_for
from compress.models.load_save import load_model, load_tokenizer, read_config
from compress.recipe.training_schema import Distill, FurtherTeacher
from compress.train.distillation.tokenizer_checks import TEACHERS_HINT, check_same_vocabulary
from compress.train.objective import Batch, forward

ModelOutputs = Mapping[str, Tensor]
"""Model outputs by name: `logits`, `start_logits`, `sentence_embedding` …"""

EMBEDDING = "sentence_embedding"


class Teacher(Protocol):
    """Computes outputs and layer parts of a batch without gradients."""

    @property
    def model(self) -> PreTrainedModel:
        """The model whose layers are captured: the recipe's teacher."""
        ...

    def __call__(self, batch: Batch, wanted: LayerParts) -> tuple[ModelOutputs, Captured]:
        """Return outputs, and the ``wanted`` parts of each layer (`EMBEDDINGS`, or from 0), on the batch's device."""
        ...

    def models(self) -> Sequence[PreTrainedModel]:
        """Return all models that run."""
        ...

    def identity(self) -> str:
        """Return a digest of its weights."""
        ...

    def begin(self) -> None:
        """Prepare an update; called by all processes of a training, whether or not they need the teacher in it."""
        ...

    def seconds_cached(self) -> float:
        """Return the seconds so far that later epochs save."""
        ...


TeacherCacheFactory = Callable[[Teacher, LayerParts], Teacher]
"""Wraps a teacher, given all layer parts that any phase needs, so that its outputs are cached on disk."""


class ModelTeacher:
    """One model, in eval mode."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        model.train(False)

    def __call__(self, batch: Batch, wanted: LayerParts) -> tuple[ModelOutputs, Captured]:
        """Run a forward pass on the batch's device."""
        device = batch["input_ids"].device
        if self.model.device != device:
            nn.Module.to(self.model, device)
        with torch.no_grad(), capture_parts(self.model, wanted) as captured:
            return forward(self.model, batch), captured

    def models(self) -> Sequence[PreTrainedModel]:
        """Return the model."""
        return (self.model,)

    def identity(self) -> str:
        """Return a digest of all weights, including the head."""
        digest = hashlib.sha256()
        for name, tensor in self.model.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def begin(self) -> None:
        """Do nothing."""

    def seconds_cached(self) -> float:
        """Return 0: nothing is cached."""
        return 0.0


class Ensemble:
    """Several teachers with averaged outputs; layers are those of the first.

    Outputs are the weighted mean of the teachers' logits, example by example; of embeddings, the weighted mean of the
    unit vectors, normalized again.
    """

    def __init__(self, teachers: Sequence[tuple[Teacher, float]]) -> None:
        total = sum(weight for _, weight in teachers)
        self.teachers = [(teacher, weight / total) for teacher, weight in teachers]
        self.model = teachers[0][0].model

    def __call__(self, batch: Batch, wanted: LayerParts) -> tuple[ModelOutputs, Captured]:
        """Return averaged outputs, and layers of the first teacher."""
        (first, weight), *others = self.teachers
        outputs, captured = first(batch, wanted)
        sums = {name: weight * output.float() for name, output in outputs.items()}
        for teacher, weight in others:
            for name, output in teacher(batch, {})[0].items():
                sums[name] += weight * output.float()
        return {name: F.normalize(mean, dim=-1) if name == EMBEDDING else mean for name, mean in sums.items()}, captured

    def models(self) -> Sequence[PreTrainedModel]:
        """Return those of every teacher."""
        return [model for teacher, _ in self.teachers for model in teacher.models()]

    def identity(self) -> str:
        """Return the digests of all teachers with their weights."""
        return " + ".join(f"{weight:g} {teacher.identity()}" for teacher, weight in self.teachers)

    def begin(self) -> None:
        """Prepare every teacher."""
        for teacher, _ in self.teachers:
            teacher.begin()

    def seconds_cached(self) -> float:
        """Return those of every teacher."""
        return sum(teacher.seconds_cached() for teacher, _ in self.teachers)


def as_teacher(given: PreTrainedModel | Teacher | Iterable[tuple[PreTrainedModel, float]]) -> Teacher:
    """Return a teacher for a model, or for several models with weights."""
    if isinstance(given, PreTrainedModel):
        return ModelTeacher(given)
    if not isinstance(given, Iterable):
        return given
    teachers = [(ModelTeacher(model), weight) for model, weight in given]
    return teachers[0][0] if len(teachers) == 1 else Ensemble(teachers)


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
        found = saved.head.name if saved.head else "unknown"
        raise ModelError(f"{who} was trained for another task kind: its head is {found}, expected {expected.name}.")
