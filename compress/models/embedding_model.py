"""Sentence embeddings: a plain encoder whose token states are pooled, optionally projected, and normalised.

Reimers and Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", 2019 (arXiv:1908.10084). The
weights have the plain encoder's names, plus `projection.weight`, so that `AutoModel` reads the same files. The config
has the pooling (`pooling`) and the width of the projection (`sentence_size`). Folders of sentence-transformers may
also pool otherwise, have a bias and an activation (`sentence_bias`, `sentence_activation`), and not normalise
(`sentence_normalize`): such models are exported, and a training takes the first kind alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import MODEL_MAPPING, AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils.generic import ModelOutput

PROJECTION = "projection."
"""Beginning of the names of the weights that a plain encoder has not."""
POOLINGS = ("mean", "cls")
"""How models are pooled that are trained here."""

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "Identity": lambda values: values,
    "Tanh": torch.tanh,
    "ReLU": torch.relu,
    "GELU": F.gelu,
    "Sigmoid": torch.sigmoid,
}
"""By the name of torch's module: what may follow a projection."""


@dataclass
class EmbeddingOutput(ModelOutput):
    """The output of an embedding model."""

    sentence_embedding: Tensor | None = None
    """(rows, size), unit vectors."""
    last_hidden_state: Tensor | None = None
    """(rows, tokens, width), only inside `token_states`."""


if TYPE_CHECKING:
    Encoder = PreTrainedModel
else:
    Encoder = object


class SentenceEmbedding(Encoder):
    """Mixed in before a plain encoder class."""

    projection: nn.Linear | None
    returns_token_states = False

    def __init__(self, config: PreTrainedConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        set_pooling(config, getattr(config, "pooling", POOLINGS[0]))
        size, bias = config.sentence_size, bool(getattr(config, "sentence_bias", False))
        self.projection = nn.Linear(config.hidden_size, size, bias=bias) if size else None
        if self.projection is not None:
            self._init_weights(self.projection)  # type: ignore[no-untyped-call]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> EmbeddingOutput:
        """Return the embeddings of a padded batch; padding is masked."""
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if token_type_ids is not None:
            kwargs["token_type_ids"] = token_type_ids
        states = super().forward(input_ids=input_ids, attention_mask=attention_mask, **kwargs).last_hidden_state
        text = POOL[self.config.pooling](states, attention_mask)
        if self.projection is not None:
            text = self.projection(text.to(self.projection.weight.dtype))
            text = ACTIVATIONS[getattr(self.config, "sentence_activation", "Identity")](text)
        if getattr(self.config, "sentence_normalize", True):
            text = F.normalize(text.float(), dim=-1)
        return EmbeddingOutput(text.float(), states if self.returns_token_states else None)


@contextmanager
def token_states(model: PreTrainedModel) -> Iterator[None]:
    """Let an embedding model return its tokens' states too, which other tools pool by themselves."""
    if isinstance(model, SentenceEmbedding):
        model.returns_token_states = True
    try:
        yield
    finally:
        if isinstance(model, SentenceEmbedding):
            model.returns_token_states = False


def mean_pool(states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of ``states`` (rows, tokens, width) over the tokens of each row that are not padding."""
    real = mask[:, :, None].to(states.dtype)
    mean: Tensor = (states * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
    return mean


def _largest(states: Tensor, mask: Tensor) -> Tensor:
    return states.masked_fill(mask[:, :, None] == 0, torch.finfo(states.dtype).min).amax(dim=1)


def _sum_by_root(states: Tensor, mask: Tensor) -> Tensor:
    return mean_pool(states, mask) * mask.sum(dim=1, keepdim=True).clamp(min=1).to(states.dtype).sqrt()


def _later_more(states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean with weights that rise with the position, from 1 (arXiv:2202.08904)."""
    weights = (mask.cumsum(dim=1) * mask).to(states.dtype)[:, :, None]
    weighted: Tensor = (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
    return weighted


POOL: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": mean_pool,
    "cls": lambda states, mask: states[:, 0],
    "max": _largest,
    "mean_sqrt_len_tokens": _sum_by_root,
    "weightedmean": _later_more,
}
"""From states (rows, tokens, width) and the mask to one vector a row, by sentence-transformers' names."""


class EmbeddingClasses(dict[type[PreTrainedConfig], type[PreTrainedModel]]):
    """Maps config classes to model classes, which are created from transformers' plain encoder on first access."""

    def __missing__(self, config: type[PreTrainedConfig]) -> type[PreTrainedModel]:
        plain: Any = MODEL_MAPPING[config]
        name = plain.__name__.removesuffix("Model") + "ForSentenceEmbedding"
        members = {"__module__": __name__, "__doc__": f"{plain.__name__}, with one vector per text as its output."}
        self[config] = type(name, (SentenceEmbedding, plain), members)
        return self[config]


class AutoModelForSentenceEmbedding:
    """An Auto class like those of transformers: the model class follows from the config."""

    _model_mapping = EmbeddingClasses()

    @classmethod
    def register(cls, config: type[PreTrainedConfig], model: type[PreTrainedModel]) -> None:
        """Register ``model`` as the class for configs of this class."""
        cls._model_mapping[config] = model

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, config: PreTrainedConfig | None = None, **kwargs: Any) -> Any:
        """Call ``from_pretrained`` of the model class that the folder's config selects."""
        config = config or AutoConfig.from_pretrained(folder)
        return cls._model_mapping[type(config)].from_pretrained(folder, config=config, **kwargs)


def set_pooling(config: PreTrainedConfig, pooling: str, size: int | None = None) -> None:
    """Set the pooling in a config, and the width of the projection if there is one."""
    config.update({"pooling": pooling, "sentence_size": size or getattr(config, "sentence_size", None)})


def embedding_size(model: PreTrainedModel) -> int:
    """Return the width of a model's embeddings."""
    return int(getattr(model.config, "sentence_size", None) or model.config.hidden_size)


def projection_layer(model: PreTrainedModel) -> nn.Linear | None:
    """Return a model's projection; None if it has none."""
    projection = getattr(model, "projection", None)
    return projection if isinstance(projection, nn.Linear) else None


def projection_of(model: PreTrainedModel) -> Tensor | None:
    """Return the weight of a model's projection (size, width); None if it has none."""
    projection = projection_layer(model)
    return None if projection is None else projection.weight.detach()


def set_projection(model: PreTrainedModel, weight: Tensor | None, bias: Tensor | None = None) -> None:
    """Replace an embedding model's projection by ``weight`` (size, width) and ``bias``; None removes it."""
    assert isinstance(model, SentenceEmbedding)
    model.config.sentence_size = None if weight is None else len(weight)
    model.projection = None
    if weight is not None:
        model.projection = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
        for name, values in {"weight": weight, "bias": bias}.items():
            if values is not None:
                setattr(model.projection, name, nn.Parameter(values.detach().clone().to(model.device, model.dtype)))


def set_embedding_size(model: PreTrainedModel, size: int, seed: int) -> None:
    """Make a model's embeddings ``size`` wide, by a random projection drawn from ``seed`` where they are not yet."""
    if embedding_size(model) == size:
        return
    width = int(model.config.hidden_size)
    drawn = torch.randn(size, width, generator=torch.Generator().manual_seed(seed)) * width**-0.5
    set_projection(model, None if size == width else drawn)


def with_projection(model: PreTrainedModel, weight: Tensor) -> PreTrainedModel:
    """Return a copy of an embedding model with another projection."""
    copied = copy.deepcopy(model)
    set_projection(copied, weight)
    return copied
