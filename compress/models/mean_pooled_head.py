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
from compress.models.heads import set_linear_head

if TYPE_CHECKING:
    Classifier = PreTrainedModel
else:
    Classifier = object


class MeanPooledHead(Classifier):  # type: ignore[no-untyped-call]
    """Mixed in before a sequence classification class; without `head_pooling` in the config it changes nothing."""

    dropout: nn.Dropout
    classifier: nn.Linear

    def __init__(self, config: PreTrainedConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        if config.head_pooling is None:
            return
        set_linear_head(self, int(config.hidden_size))

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
