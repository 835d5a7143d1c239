"""Who a student learns from: one model, or several that answer as one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.models.observe import Seen, Wanted, observe_each
from compress.train.objective import Batch, forward

Answers = Mapping[str, Tensor]
"""A model's outputs by name: `logits`, `start_logits`, `sentence_embedding` …"""

EMBEDDING = "sentence_embedding"


class Teacher(Protocol):
    """Answers a batch without gradients, and shows what is asked of its layers."""

    @property
    def model(self) -> PreTrainedModel:
        """The model whose layers are shown: the recipe's own teacher."""
        ...

    def __call__(self, batch: Batch, wanted: Wanted) -> tuple[Answers, Seen]:
        """What it answers, and the ``wanted`` parts of each layer (`EMBEDDINGS`, or from 0), on the batch's device."""
        ...

    def identity(self) -> str:
        """What tells it from other teachers: its weights."""
        ...


class ModelTeacher:
    """One model, in eval mode."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        model.train(False)

    def __call__(self, batch: Batch, wanted: Wanted) -> tuple[Answers, Seen]:
        """A forward pass, wherever the batch is."""
        device = batch["input_ids"].device
        if self.model.device != device:
            nn.Module.to(self.model, device)
        with torch.no_grad(), observe_each(self.model, wanted) as seen:
            return forward(self.model, batch), seen

    def identity(self) -> str:
        """By all of its weights: two heads may stand on the same layers."""
        digest = hashlib.sha256()
        for name, tensor in self.model.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()


class Ensemble:
    """Several teachers that answer as one; layers are those of the first.

    Answers are the weighted mean of the teachers' logits, example by example; of embeddings, the weighted mean of the
    unit vectors, brought to length one again.
    """

    def __init__(self, teachers: Sequence[tuple[Teacher, float]]) -> None:
        total = sum(weight for _, weight in teachers)
        self.teachers = [(teacher, weight / total) for teacher, weight in teachers]
        self.model = teachers[0][0].model

    def __call__(self, batch: Batch, wanted: Wanted) -> tuple[Answers, Seen]:
        """Only the first teacher is looked into."""
        (first, weight), *others = self.teachers
        answers, seen = first(batch, wanted)
        sums = {name: weight * answer.float() for name, answer in answers.items()}
        for teacher, weight in others:
            for name, answer in teacher(batch, {})[0].items():
                sums[name] += weight * answer.float()
        return {name: F.normalize(mean, dim=-1) if name == EMBEDDING else mean for name, mean in sums.items()}, seen

    def identity(self) -> str:
        """Every teacher with its weight."""
        return " + ".join(f"{weight:g} {teacher.identity()}" for teacher, weight in self.teachers)


def as_teacher(given: PreTrainedModel | Teacher | Iterable[tuple[PreTrainedModel, float]]) -> Teacher:
    """One teacher of a model, or of several with their weights."""
    if isinstance(given, PreTrainedModel):
        return ModelTeacher(given)
    if not isinstance(given, Iterable):
        return given
    teachers = [(ModelTeacher(model), weight) for model, weight in given]
    return teachers[0][0] if len(teachers) == 1 else Ensemble(teachers)
