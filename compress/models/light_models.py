"""Models without attention: a vector for each word piece and each n-gram of pieces, and a small head.

They take input_ids and attention_mask like any other model. `static` models
read the mean of a text's vectors and the maximum of its pieces' (Iyyer et al., 2015; Ye et al., "Sparse Distillation",
2022, arXiv:2110.08536). `conv` models add the n-grams to the pieces that they end with, and let depthwise convolutions
and one product for each read the tokens in order first.

Of a pair of texts, which the separator between them divides, the head reads both vectors, their difference and their
product. The special tokens of a text have no vectors.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput, TokenClassifierOutput

from compress.families import LIGHT_FAMILIES, NONUNIFORM_PREFIX
from compress.models.embedding_model import SentenceEmbedding
from compress.models.heads import HEADS
from compress.models.light_embeddings import LightEmbeddings
from compress.ngram_hash import HASHES

KERNEL = 3
"""Tokens that a convolution reads."""
HIGHEST = 1e4
"""Above every number in a vector."""


def _light_config(name: str) -> type[PreTrainedConfig]:
    """Return the config of a kind of model (transformers makes it a dataclass)."""
    fields: dict[str, tuple[Any, Any]] = {
        "vocab_size": (int, 30_522),
        "hidden_size": (int, 128),
        "factors": (int | None, None),
        "num_hidden_layers": (int, 0),
        "ngrams": (int, 3),
        "buckets": (int, 20_000),
        "head_width": (int, 512),
        "hidden_dropout_prob": (float, 0.1),
        "special_token_ids": (list[int] | None, None),
        "sep_token_id": (int | None, None),
        "pad_token_id": (int | None, 0),
        "pairs": (bool, False),
    }
    members = {
        "model_type": NONUNIFORM_PREFIX + name,
        "__doc__": f"A {name} model.",
        "__annotations__": {key: kind for key, (kind, _) in fields.items()},
        "__module__": __name__,
        **{key: default for key, (_, default) in fields.items()},
    }
    return type(f"Compress{name.title()}Config", (PreTrainedConfig,), members)


LIGHT_CONFIGS: dict[str, type[PreTrainedConfig]] = {name: _light_config(name) for name in LIGHT_FAMILIES}


class Convolution(nn.Module):
    """A depthwise convolution over the tokens, a product over the channels, and what it read added to the result."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, KERNEL, padding=KERNEL // 2, groups=width)
        self.pointwise = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, content: Tensor) -> Tensor:
        """Return states (rows, tokens, width); zeros where ``content`` is 0."""
        mixed = self.depthwise(states.transpose(1, 2)).transpose(1, 2)
        added: Tensor = self.dropout(self.pointwise(F.relu(mixed)))
        return (states + added) * content[..., None]


class LightModel(PreTrainedModel):  # type: ignore[no-untyped-call]
    """Base of the classes with a head and without: how weights are drawn."""

    base_model_prefix = "encoder"

    def get_input_embeddings(self) -> nn.Module:
        """Return the vectors of pieces."""
        vectors: nn.Module = self.base_model.get_submodule("embeddings.word_embeddings")
        return vectors

    def _init_weights(self, module: nn.Module) -> None:
        """Draw vectors and layers at random; the weight of a vector is 1, of each of two vectors a half."""
        with torch.no_grad():
            if isinstance(module, (nn.Linear, nn.Conv1d)):
                nn.init.kaiming_uniform_(module.weight, a=5**0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, LightEmbeddings):
                nn.init.normal_(module.word_embeddings.weight, std=module.word_embeddings.embedding_dim**-0.5)
                nn.init.ones_(module.piece_weights.weight)
                if module.longest > 1:
                    nn.init.zeros_(module.ngram_embeddings.weight)
                    nn.init.constant_(module.ngram_weights.weight, 1 / (HASHES - 1))


class LightEncoder(LightModel):  # type: ignore[no-untyped-call]
    """Token vectors, and the convolutions that read them."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embeddings = LightEmbeddings(config)
        dropout = config.hidden_dropout_prob
        self.convolutions = nn.ModuleList(
            Convolution(config.hidden_size, dropout) for _ in range(config.num_hidden_layers)
        )
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any) -> BaseModelOutput:
        """Return the vectors of the tokens of a padded batch (rows, tokens, hidden)."""
        return BaseModelOutput(last_hidden_state=self.states(input_ids, self.content(input_ids, attention_mask)))

    def states(self, ids: Tensor, content: Tensor) -> Tensor:
        """Return the vectors of the tokens (rows, tokens, hidden), zeros where ``content`` is 0."""
        states: Tensor = self.embeddings(ids, content)
        for convolution in self.convolutions:
            states = convolution(states, content)
        return states

    def texts(self, ids: Tensor, content: Tensor, parts: Sequence[Tensor]) -> list[Tensor]:
        """Return what the head reads of each part of the rows (rows, 2 · hidden), of which masks say where it is.

        That is a mean and a maximum; of a part without tokens both are zeros.
        """
        if len(self.convolutions):
            states = self.states(ids, content)
            return [_joined(states, _total(states, part), part) for part in parts]
        embeddings = self.embeddings
        pieces = embeddings.pieces(ids, content)
        totals = [_total(pieces, part) for part in parts]
        if embeddings.longest > 1:
            pooled, weights = embeddings.ngrams(ids, content)
            pooled = pooled.flatten(1, 2)
            for number, part in enumerate(parts):
                own = weights if len(parts) == 1 else weights * part[..., None]
                totals[number] = totals[number] + _total(pooled, own.flatten(1))
        states = embeddings.expand(pieces)
        return [_joined(states, embeddings.expand(total), part) for total, part in zip(totals, parts, strict=True)]

    def content(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return 1.0 at the tokens of texts (rows, tokens), 0.0 at padding and special tokens."""
        dtype = self.embeddings.dtype
        special = torch.tensor(self.config.special_token_ids or [-1], device=ids.device)
        # In floating point: OpenVINO 2026.4 computes a difference after a sum of integers wrong for some rows.
        read = 1 - (ids[..., None] == special).to(dtype).sum(dim=-1)
        return read if mask is None else read * mask.to(dtype)


class LightHead(nn.Module):
    """A hidden layer on a text's vectors, and an output layer that reads both."""

    def __init__(self, inputs: int, config: Any) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.dense = nn.Linear(inputs, config.head_width)
        self.out_proj = nn.Linear(inputs + config.head_width, config.num_labels or 1)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return outputs (…, outputs) of vectors (…, inputs)."""
        vectors = self.dropout(vectors)
        hidden = self.dropout(F.relu(self.dense(vectors)))
        logits: Tensor = self.out_proj(torch.cat([vectors, hidden], dim=-1))
        return logits


class _WithHead(LightModel):  # type: ignore[no-untyped-call]
    """Base of the classes with a head, whose encoder is a part of its own."""

    encoder_class: Any = LightEncoder

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.encoder = self.encoder_class(config)
        self.classifier = LightHead(self.features(config), config)
        self.post_init()  # type: ignore[no-untyped-call]

    @staticmethod
    def features(config: Any) -> int:
        """Return how many numbers the head reads."""
        raise NotImplementedError


class LightForSequenceClassification(_WithHead):  # type: ignore[no-untyped-call]
    """One decision a text, or a pair of them."""

    @staticmethod
    def features(config: Any) -> int:
        """Mean and maximum; of a pair those of both texts, their difference and their product."""
        return 2 * int(config.hidden_size) * (4 if config.pairs else 1)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        """Return the logits of a padded batch."""
        content = self.encoder.content(input_ids, attention_mask)
        if not self.config.pairs:
            (text,) = self.encoder.texts(input_ids, content, [content])
        else:
            ends = (input_ids == self.config.sep_token_id).to(content.dtype)
            first = (torch.cumsum(ends, dim=1) < 1).to(content.dtype)
            left, right = self.encoder.texts(input_ids, content, [content * first, content * (1 - first)])
            text = torch.cat([left, right, (left - right).abs(), left * right], dim=-1)
        logits = self.classifier(text)
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class LightForTokenClassification(_WithHead):  # type: ignore[no-untyped-call]
    """One decision a token."""

    @staticmethod
    def features(config: Any) -> int:
        """The token's own vector."""
        return int(config.hidden_size)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, **_: Any
    ) -> TokenClassifierOutput:
        """Return the logits of a padded batch."""
        logits = self.classifier(self.encoder(input_ids, attention_mask).last_hidden_state)
        loss = None if labels is None else self.loss_function(logits, labels, self.config)
        return TokenClassifierOutput(loss=loss, logits=logits)


def _total(vectors: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sums (rows, width) of vectors (rows, tokens, width)."""
    return (weights[:, None] @ vectors)[:, 0]


def _joined(states: Tensor, total: Tensor, part: Tensor) -> Tensor:
    """Return the mean of a part with this total and the maximum of its states."""
    count = part.sum(dim=1, keepdim=True)
    largest = (states + (part[..., None] - 1) * HIGHEST).amax(dim=1)
    return torch.cat([total / count.clamp(min=1.0), largest * count.clamp(max=1.0)], dim=-1)


def register_light_models() -> None:
    """Register both kinds with the Auto classes of the heads that they can have."""
    for name, config in LIGHT_CONFIGS.items():
        AutoConfig.register(config.model_type, config)
        encoder = _named("Model", (LightEncoder,), name, config)
        HEADS["encoder"].auto.register(config, encoder)
        embedding = _named("ForSentenceEmbedding", (SentenceEmbedding, encoder), name, config)
        HEADS["sentence-embedding"].auto.register(config, embedding)
        heads: dict[str, type] = {"sequence-classification": LightForSequenceClassification}
        if LIGHT_FAMILIES[name].reads_order:
            heads["token-classification"] = LightForTokenClassification
        for head, base in heads.items():
            HEADS[head].auto.register(config, _named(HEADS[head].suffix, (base,), name, config, encoder_class=encoder))


def _named(
    suffix: str, bases: tuple[type, ...], name: str, config: type[PreTrainedConfig], **members: Any
) -> type[PreTrainedModel]:
    """Return the class for one kind: `CompressStaticForSequenceClassification`."""
    described = {"__module__": __name__, "__doc__": f"A {name} model.", "config_class": config, **members}
    return type(f"Compress{name.title()}{suffix}", bases, described)
