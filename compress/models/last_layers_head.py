"""A linear head on the concatenated states of the last four layers, which are not trained: BERT's feature-based use.

Devlin et al., 2019 (arXiv:1810.04805), section 5.3. A config with `head_features: last4` replaces the head of a family
by one linear layer: of texts it reads the mean over their tokens, of tags and spans each token. Plain transformers
would compute something else from the same folder, so it has a model_type of ours (`compress-bert`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import (
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

from compress.models.embedding_model import mean_pool
from compress.models.encoder_parts import base_of
from compress.models.mean_pooled_head import dropout_rate
from compress.recipe.finetune_schema import FEATURE_LAYERS

if TYPE_CHECKING:
    Classifier = PreTrainedModel
else:
    Classifier = object


class LastLayersHead(Classifier):
    """Mixed in before a class with a head; without `head_features` in the config it changes nothing."""

    def __init__(self, config: PreTrainedConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        if config.head_features is None:
            return
        base = base_of(self)
        if getattr(base, "pooler", None) is not None:
            base.register_module("pooler", None)
        for name, child in list(self.named_children()):
            if child is not base:
                delattr(self, name)
        self.dropout = nn.Dropout(dropout_rate(config))
        self.classifier = nn.Linear(FEATURE_LAYERS * int(config.hidden_size), config.num_labels or 1)
        self._init_weights(self.classifier)  # type: ignore[no-untyped-call]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the outputs of a padded batch; padding does not count."""
        kwargs |= {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            kwargs["token_type_ids"] = token_type_ids
        if self.config.head_features is None:
            return super().forward(**kwargs)
        states = base_of(self)(**{**kwargs, "output_hidden_states": True}).hidden_states
        features = torch.cat(states[-FEATURE_LAYERS:], dim=-1)
        if type(self).__name__.endswith("ForSequenceClassification"):
            mask = features.new_ones(features.shape[:2]) if attention_mask is None else attention_mask
            return SequenceClassifierOutput(logits=self.classifier(self.dropout(mean_pool(features, mask))))
        logits = self.classifier(self.dropout(features))
        if type(self).__name__.endswith("ForTokenClassification"):
            return TokenClassifierOutput(logits=logits)
        start, end = logits.unbind(-1)
        return QuestionAnsweringModelOutput(start_logits=start, end_logits=end)


def reads_last_layers(model: PreTrainedModel) -> bool:
    """Return whether a model's head reads several layers."""
    return getattr(model.config, "head_features", None) is not None
