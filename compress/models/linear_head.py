"""A linear head in place of a family's own, for heads that read something else than the family's does."""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from compress.models.encoder_parts import base_of

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
