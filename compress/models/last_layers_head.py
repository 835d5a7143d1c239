"""A head on the concatenated states of the last four layers, which are not trained: BERT's feature-based use.

Devlin et al., 2019 (arXiv:1810.04805), section 5.3. A config with `head_features: last4` replaces the head of a family
by one linear layer: of texts it reads the mean over their tokens, of tags and spans each token. With `head_layers:
bilstm` it reads a BiLSTM over the tokens instead (Hochreiter and Schmidhuber, 1997; tags alone), with as many units in
each direction as the encoder is wide: 768 in BERT base, as in the paper. The backward direction reads each text from
its last token, not from its padding: it is an LSTM on the text in reverse. No packed sequences are needed, which
exporters cannot trace. Plain transformers would compute something else from the same folder, so it has a model_type of
ours (`compress-bert`).
"""

from __future__ import annotations

from collections.abc import Sequence
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
from compress.models.heads import set_linear_head
from compress.recipe.training_schema import FEATURE_LAYERS

LAYERS = 2


class BiLSTM(nn.Module):
    """Two layers with ``size`` units in each direction; the result has 2 · ``size`` numbers a token."""

    def __init__(self, width: int, size: int) -> None:
        """``width`` is that of the states that are read."""
        super().__init__()
        widths = [width, *[2 * size] * (LAYERS - 1)]
        self.forwards = nn.ModuleList(nn.LSTM(width, size, batch_first=True) for width in widths)
        self.backwards = nn.ModuleList(nn.LSTM(width, size, batch_first=True) for width in widths)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return (rows, tokens, 2 · size) of states (rows, tokens, width) and a mask that is 1 before the padding."""
        mirror = mirrored_positions(mask)
        for ahead, back in zip(self.forwards, self.backwards, strict=True):
            from_end = back(_gather(states, mirror))[0]
            states = torch.cat([ahead(states)[0], _gather(from_end, mirror)], dim=-1)
        return states


def mirrored_positions(mask: Tensor) -> Tensor:
    """Return where each token of the texts in reverse stands (rows, tokens); padding stays where it is."""
    positions = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask.bool(), mask.sum(dim=1, keepdim=True) - 1 - positions, positions)


def _gather(states: Tensor, positions: Tensor) -> Tensor:
    return states.gather(1, positions[..., None].expand_as(states))


if TYPE_CHECKING:
    Classifier = PreTrainedModel
else:
    Classifier = object


class LastLayersHead(Classifier):  # type: ignore[no-untyped-call]
    """Mixed in before a class with a head; without `head_features` in the config it changes nothing."""

    dropout: nn.Dropout
    classifier: nn.Linear
    bilstm: BiLSTM
    """Only with `head_layers` in the config."""

    def __init__(self, config: PreTrainedConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        if config.head_features is None:
            return
        width, hidden = FEATURE_LAYERS * int(config.hidden_size), int(config.hidden_size)
        if config.head_layers is None:
            set_linear_head(self, width)
            return
        set_linear_head(self, 2 * hidden)
        self.bilstm = BiLSTM(width, hidden)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the outputs of a padded batch, as the family's own class does; padding does not count."""
        kwargs |= {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            kwargs["token_type_ids"] = token_type_ids
        targets = {"labels": labels, "start_positions": start_positions, "end_positions": end_positions}
        targets = {name: target for name, target in targets.items() if target is not None}
        if self.config.head_features is None:
            return super().forward(**kwargs, **targets)
        outputs = base_of(self)(**{**kwargs, "output_hidden_states": True})
        states = outputs.hidden_states
        mask = attention_mask
        if mask is None:
            mask = states[-1].new_ones(states[-1].shape[:2], dtype=torch.long)
        result = self.read(last_layers(states), mask, **targets)
        result.hidden_states = states if kwargs.get("output_hidden_states") else None
        result.attentions = outputs.attentions
        return result

    def read(
        self,
        features: Tensor,
        mask: Tensor,
        labels: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
    ) -> Any:
        """Return the outputs of the head alone, from what `last_layers` returns."""
        if self.config.head_layers is not None:
            features = self.bilstm(self.dropout(features), mask)
        name = type(self).__name__
        if name.endswith("ForSequenceClassification"):
            logits = self.classifier(self.dropout(mean_pool(features, mask)))
            loss = None if labels is None else self.loss_function(labels, logits, self.config)
            return SequenceClassifierOutput(loss=loss, logits=logits)
        logits = self.classifier(self.dropout(features))
        if name.endswith("ForTokenClassification"):
            loss = None if labels is None else self.loss_function(logits, labels, self.config)
            return TokenClassifierOutput(loss=loss, logits=logits)
        start, end = logits.unbind(-1)
        loss = self.loss_function(start, end, start_positions, end_positions)
        return QuestionAnsweringModelOutput(loss=loss, start_logits=start, end_logits=end)


def last_layers(states: Sequence[Tensor]) -> Tensor:
    """Return the last four of an encoder's hidden states, concatenated (rows, tokens, 4 · hidden)."""
    return torch.cat([*states[-FEATURE_LAYERS:]], dim=-1)


def reads_last_layers(model: PreTrainedModel) -> bool:
    """Return whether a model's head reads several layers."""
    return getattr(model.config, "head_features", None) is not None
