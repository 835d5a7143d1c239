"""What stands on the encoder: a head's name, the transformers classes that carry it, and what it answers."""

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
    """A task kind names one of these as its `head`."""

    name: str
    auto: Any
    """The AutoModel class that loads it (transformers gives these no common type)."""
    classes: Any
    """transformers' map from config class to model class."""
    suffix: str
    """How its model classes end: `BertForSequenceClassification`."""
    outputs: tuple[str, ...]

    def model_class(self, config: type[PreTrainedConfig]) -> type[PreTrainedModel]:
        """The class that puts this head on models with this config."""
        found: type[PreTrainedModel] = self.classes[config]
        return found


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
    """The head of this name."""
    if name not in HEADS:
        raise ModelError(f"no head is called '{name}'{nearest(name, HEADS)}.")
    return HEADS[name]


def head_of_class(class_name: str) -> Head | None:
    """The head that a model class carries; None for one that is no head of ours (a pretraining head)."""
    return next((head for head in HEADS.values() if class_name.endswith(head.suffix)), None)


def head_of(model: PreTrainedModel) -> Head:
    """The head on a model."""
    name = type(model).__name__
    head = head_of_class(name)
    if head is None:
        known = ", ".join(f"…{entry.suffix}" for entry in HEADS.values())
        raise ModelError(f"a {name} cannot be worked on; expected a model class that ends like one of these: {known}.")
    return head
