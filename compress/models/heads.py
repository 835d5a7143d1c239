"""Heads on top of the encoder: their names, transformers classes and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
)

from compress.errors import ModelError
from compress.model_info import TaskInfo
from compress.models.embedding_model import AutoModelForSentenceEmbedding
from compress.tasks import kind_of


@dataclass(frozen=True)
class Head:
    """One kind of head; a task kind names it as its `head`."""

    name: str
    auto: Any
    """The AutoModel class that loads it (transformers gives these no common type)."""
    outputs: tuple[str, ...]

    @property
    def suffix(self) -> str:
        """Suffix of its model classes: `BertForSequenceClassification`, `BertModel`."""
        return str(self.auto.__name__).removeprefix("AutoModel") or "Model"

    def model_class(self, config: type[PreTrainedConfig]) -> type[PreTrainedModel]:
        """Return the model class with this head for a config class."""
        model: type[PreTrainedModel] = self.auto._model_mapping[config]
        return model


HEADS: Mapping[str, Head] = {
    head.name: head
    for head in (
        Head("sequence-classification", AutoModelForSequenceClassification, ("logits",)),
        Head("token-classification", AutoModelForTokenClassification, ("logits",)),
        Head("question-answering", AutoModelForQuestionAnswering, ("start_logits", "end_logits")),
        Head("sentence-embedding", AutoModelForSentenceEmbedding, ("sentence_embedding",)),
        Head("encoder", AutoModel, ("last_hidden_state",)),
    )
}


EMBEDDING = HEADS["sentence-embedding"]
"""The output of the encoder itself: there is nothing to initialise."""


def head_for(task: TaskInfo) -> Head:
    """Return the head of a task's kind."""
    return HEADS[kind_of(task).head]


def head_of_class(class_name: str) -> Head | None:
    """Return the head of a model class; None for unsupported heads (pretraining heads)."""
    return next((head for head in HEADS.values() if class_name.endswith(head.suffix)), None)


def head_of(model: PreTrainedModel) -> Head:
    """Return the head of a model."""
    name = type(model).__name__
    head = head_of_class(name)
    if head is None:
        known = ", ".join(f"…{entry.suffix}" for entry in HEADS.values())
        raise ModelError(f"model class {name} is not supported; expected a class with one of these suffixes: {known}.")
    return head
