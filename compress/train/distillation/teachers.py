"""Who a student learns from: one model, or several that answer as one."""

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
from compress.models.heads import Head, head_named
from compress.models.load_save import load_model, load_tokenizer, read_config
from compress.recipe.training_schema import Distill, FurtherTeacher
from compress.tasks import kind_of
from compress.train.distillation.tokenizer_checks import TEACHERS_HINT, check_same_vocabulary
from compress.train.objective import Batch, forward

ModelOutputs = Mapping[str, Tensor]
"""A model's outputs by name: `logits`, `start_logits`, `sentence_embedding` …"""

EMBEDDING = "sentence_embedding"


class Teacher(Protocol):
    """Answers a batch without gradients, and shows what is asked of its layers."""

    @property
    def model(self) -> PreTrainedModel:
        """The model whose layers are shown: the recipe's own teacher."""
        ...

    def __call__(self, batch: Batch, wanted: LayerParts) -> tuple[ModelOutputs, Captured]:
        """What it answers, and the ``wanted`` parts of each layer (`EMBEDDINGS`, or from 0), on the batch's device."""
        ...

    def models(self) -> Sequence[PreTrainedModel]:
        """All that run."""
        ...

    def identity(self) -> str:
        """What tells it from other teachers: its weights."""
        ...

    def begin(self) -> None:
        """Told before each update, by all processes of a training, whether they will ask anything in it or not."""
        ...

    def seconds_cached(self) -> float:
        """Seconds so far that no later epoch takes again."""
        ...


TeacherCacheFactory = Callable[[Teacher, LayerParts], Teacher]
"""A teacher, and all that will ever be asked of its layers, becomes one whose words stay on disk."""


class ModelTeacher:
    """One model, in eval mode."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        model.train(False)

    def __call__(self, batch: Batch, wanted: LayerParts) -> tuple[ModelOutputs, Captured]:
        """A forward pass, wherever the batch is."""
        device = batch["input_ids"].device
        if self.model.device != device:
            nn.Module.to(self.model, device)
        with torch.no_grad(), capture_parts(self.model, wanted) as seen:
            return forward(self.model, batch), seen

    def models(self) -> Sequence[PreTrainedModel]:
        """The one."""
        return (self.model,)

    def identity(self) -> str:
        """By all of its weights: two heads may stand on the same layers."""
        digest = hashlib.sha256()
        for name, tensor in self.model.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def begin(self) -> None:
        """It is always ready."""

    def seconds_cached(self) -> float:
        """It takes as long each time."""
        return 0.0


class Ensemble:
    """Several teachers that answer as one; layers are those of the first.

    Outputs are the weighted mean of the teachers' logits, example by example; of embeddings, the weighted mean of the
    unit vectors, normalized again.
    """

    def __init__(self, teachers: Sequence[tuple[Teacher, float]]) -> None:
        total = sum(weight for _, weight in teachers)
        self.teachers = [(teacher, weight / total) for teacher, weight in teachers]
        self.model = teachers[0][0].model

    def __call__(self, batch: Batch, wanted: LayerParts) -> tuple[ModelOutputs, Captured]:
        """Only the first teacher is looked into."""
        (first, weight), *others = self.teachers
        answers, seen = first(batch, wanted)
        sums = {name: weight * answer.float() for name, answer in answers.items()}
        for teacher, weight in others:
            for name, answer in teacher(batch, {})[0].items():
                sums[name] += weight * answer.float()
        return {name: F.normalize(mean, dim=-1) if name == EMBEDDING else mean for name, mean in sums.items()}, seen

    def models(self) -> Sequence[PreTrainedModel]:
        """Those of every teacher."""
        return [model for teacher, _ in self.teachers for model in teacher.models()]

    def identity(self) -> str:
        """Every teacher with its weight."""
        return " + ".join(f"{weight:g} {teacher.identity()}" for teacher, weight in self.teachers)

    def begin(self) -> None:
        """Every teacher is told."""
        for teacher, _ in self.teachers:
            teacher.begin()

    def seconds_cached(self) -> float:
        """Those of every teacher."""
        return sum(teacher.seconds_cached() for teacher, _ in self.teachers)


def as_teacher(given: PreTrainedModel | Teacher | Iterable[tuple[PreTrainedModel, float]]) -> Teacher:
    """One teacher of a model, or of several with their weights."""
    if isinstance(given, PreTrainedModel):
        return ModelTeacher(given)
    if not isinstance(given, Iterable):
        return given
    teachers = [(ModelTeacher(model), weight) for model, weight in given]
    return teachers[0][0] if len(teachers) == 1 else Ensemble(teachers)


def further_teachers(
    settings: Distill, first: PreTrainedModel, task: TaskInfo, tokenizer: PreTrainedTokenizerBase
) -> list[tuple[PreTrainedModel, float]]:
    """The teachers that stand beside the recipe's own with their weights, each known to answer as ``first`` does."""
    return [(_further(named, first, task, tokenizer), named.weight) for named in settings.teachers]


def _further(
    named: FurtherTeacher, first: PreTrainedModel, task: TaskInfo, tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    """One of them, with its answers in the task's order."""
    who, folder = _who(named), check_further_teacher(named, task)
    config = read_config(folder)
    check_same_vocabulary(who, load_tokenizer(folder), tokenizer, TEACHERS_HINT)
    check_length(task.max_length, max_positions(config.to_dict(), config.pad_token_id or 0), named.source)
    model = load_model(folder, task)
    if isinstance(model, SentenceEmbedding) and embedding_size(model) != embedding_size(first):
        raise ModelError(
            f"{who} makes embeddings of {embedding_size(model)} numbers, the first teacher {embedding_size(first)}."
        )
    return model


def check_further_teacher(named: FurtherTeacher, task: TaskInfo) -> Path:
    """The folder of a further teacher, which must answer the task."""
    folder = fetch(named.source, named.revision)
    check_teacher_labels(_who(named), checkpoint_task(folder, read_config(folder)), task)
    return folder


def _who(named: FurtherTeacher) -> str:
    return f"distill.teachers: {named.source}"


def check_teacher_labels(who: str, saved: CheckpointTask, task: TaskInfo) -> None:
    """Refuse a checkpoint whose head answers another question, or has other labels."""
    if fits_task(saved, task):
        return
    check_teacher_head(who, saved, head_named(kind_of(task).head))
    raise ModelError(
        f"{who} does not answer {task.name}: its answers are {', '.join(saved.names)}; "
        f"expected {', '.join(output_names(task))}, in any order.",
        hint="teachers whose logits are averaged must have been trained on the same labels",
    )


def check_teacher_head(who: str, saved: CheckpointTask, expected: Head) -> None:
    """Refuse a checkpoint that was trained for another kind of question."""
    if saved.head is not expected:
        found = saved.head.name if saved.head else "none that is known here"
        raise ModelError(f"{who} answers another question: its head is {found}, expected {expected.name}.")
