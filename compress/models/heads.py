"""Heads on top of the encoder: their names, transformers classes and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import (
    MODEL_FOR_QUESTION_ANSWERING_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    MODEL_MAPPING,
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
)

from compress.errors import ModelError, nearest
from compress.models.embedding_model import CLASS_SUFFIX, AutoModelForSentenceEmbedding


@dataclass(frozen=True)
class Head:
    """One kind of head; a task kind names it as its `head`."""

    name: str
    auto: Any
    """The AutoModel class that loads it (transformers gives these no common type)."""
    classes: Any
    """transformers' map from config class to model class."""
    suffix: str
    """Suffix of its model classes: `BertForSequenceClassification`."""
    outputs: tuple[str, ...]

    def model_class(self, config: type[PreTrainedConfig]) -> type[PreTrainedModel]:
        """Return the model class with this head for a config class."""
        model: type[PreTrainedModel] = self.classes[config]
        return model


HEADS: Mapping[str, Head] = {
    head.name: head
    for head in (
        Head(
            "sequence-classification",
            AutoModelForSequenceClassification,
            MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
            "ForSequenceClassification",
            ("logits",),
        ),
        Head(
            "token-classification",
            AutoModelForTokenClassification,
            MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
            "ForTokenClassification",
            ("logits",),
        ),
        Head(
            "question-answering",
            AutoModelForQuestionAnswering,
            MODEL_FOR_QUESTION_ANSWERING_MAPPING,
            "ForQuestionAnswering",
            ("start_logits", "end_logits"),
        ),
        Head(
            "sentence-embedding",
            AutoModelForSentenceEmbedding,
            AutoModelForSentenceEmbedding.classes,
            CLASS_SUFFIX,
            ("sentence_embedding",),
        ),
        Head("encoder", AutoModel, MODEL_MAPPING, "Model", ("last_hidden_state",)),
    )
}


def head_named(name: str) -> Head:
    """Return the head called ``name``."""
    if name not in HEADS:
        raise ModelError(f"there is no head '{name}'{nearest(name, HEADS)}.")
    return HEADS[name]


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
