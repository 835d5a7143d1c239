"""Heads on top of the encoder: names, transformers classes, outputs, and a linear one in place of a family's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
)

from compress.errors import ModelError
from compress.model_folder.model_info import TaskInfo
from compress.models.embedding_model import AutoModelForSentenceEmbedding
from compress.models.encoder_parts import base_of
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


DROPOUT_KEYS = ("classifier_dropout", "seq_classif_dropout", "classifier_dropout_prob", "hidden_dropout_prob")
"""Config keys of the dropout before the classifier; the first that a family has and sets is used."""


def set_linear_head(model: PreTrainedModel, width: int) -> None:
    """Replace all that follows the encoder, its pooler included, by a dropout and a linear layer on ``width`` numbers.

    The layer is initialised as the family's own.
    """
    base, config = base_of(model), model.config
    if getattr(base, "pooler", None) is not None:
        base.register_module("pooler", None)
    for name, child in list(model.named_children()):
        if child is not base:
            delattr(model, name)
    model.dropout = nn.Dropout(dropout_rate(config))
    model.classifier = nn.Linear(width, config.num_labels or 1)
    model._init_weights(model.classifier)  # type: ignore[no-untyped-call]


def dropout_rate(config: PreTrainedConfig) -> float:
    """Return the family's dropout before a classifier."""
    rates = (getattr(config, key, None) for key in DROPOUT_KEYS)
    return float(next((rate for rate in rates if rate is not None), 0.0))
