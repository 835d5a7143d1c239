"""Sequence classification on the mean of a text's token states, for encoders that were trained to be read that way.

The classes of transformers read the first token, through a pooler or a dense layer. Sentence encoders never trained
that token: their mean is what carries the meaning (Reimers and Gurevych, 2019, arXiv:1908.10084). A config with
`head_pooling: mean` replaces the head by one linear layer on that mean. Plain transformers would compute something
else from the same folder, so it has a model_type of ours (`compress-bert`). ModernBERT pools by mean itself where its
config's `classifier_pooling` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from compress.models.embedding_model import mean_pool
from compress.models.encoder_parts import base_of

if TYPE_CHECKING:
    Classifier = PreTrainedModel
else:
    Classifier = object

DROPOUT_KEYS = ("classifier_dropout", "seq_classif_dropout", "classifier_dropout_prob", "hidden_dropout_prob")
"""Config keys of the dropout before the classifier; the first that a family has and sets is used."""


class MeanPooledHead(Classifier):
    """Mixed in before a sequence classification class; without `head_pooling` in the config it changes nothing."""

    def __init__(self, config: PreTrainedConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        if config.head_pooling is None:
            return
        base = base_of(self)
        if getattr(base, "pooler", None) is not None:
            base.register_module("pooler", None)
        if hasattr(self, "pre_classifier"):  # DistilBERT's dense layer
            del self.pre_classifier
        self.dropout = nn.Dropout(dropout_rate(config))
        self.classifier = nn.Linear(int(config.hidden_size), config.num_labels or 1)
        self._init_weights(self.classifier)  # type: ignore[no-untyped-call]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the logits of a padded batch; padding does not count."""
        kwargs |= {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            kwargs["token_type_ids"] = token_type_ids
        if self.config.head_pooling is None:
            return super().forward(labels=labels, **kwargs)
        outputs = base_of(self)(**kwargs)
        states = outputs.last_hidden_state
        mask = states.new_ones(states.shape[:2]) if attention_mask is None else attention_mask
        logits = self.classifier(self.dropout(mean_pool(states, mask)))
        loss = None if labels is None else self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


def dropout_rate(config: PreTrainedConfig) -> float:
    """Return the family's dropout before a classifier."""
    rates = (getattr(config, key, None) for key in DROPOUT_KEYS)
    return float(next((rate for rate in rates if rate is not None), 0.0))
