"""Linear layers and embeddings that compute what the exported model will compute in INT8, for training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.models.encoder_parts import base_of, family_of
from compress.models.student.factorised_embeddings import FactoredEmbedding
from compress.quantize.qat.fake_quantization import (
    fake_quantize_activations,
    fake_quantize_vectors,
    fake_quantize_weights,
)


class FakeQuantizedLinear(nn.Linear):
    """`nn.Linear` on rounded inputs with rounded weights; its bias is added to the product, in full precision."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the product (texts, …, columns)."""
        return F.linear(fake_quantize_activations(input), fake_quantize_weights(self.weight), self.bias)


class FakeQuantizedEmbedding(nn.Embedding):
    """`nn.Embedding` that rounds what it looks up; the gradient reaches the same rows of the table as without."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the rounded vectors."""
        return fake_quantize_vectors(super().forward(input), self.weight)


class FakeQuantizedFactors(FactoredEmbedding):
    """`FactoredEmbedding` that rounds its short vectors, which enter the product as they are stored, and the matrix."""

    def forward(self, input: Tensor) -> Tensor:
        """Return vectors of the full width."""
        vectors = fake_quantize_vectors(nn.Embedding.forward(self, input), self.weight)
        return F.linear(vectors, fake_quantize_weights(self.widen.weight))


FAKE_QUANTIZED: Mapping[type[nn.Module], type[nn.Module]] = {
    nn.Linear: FakeQuantizedLinear,
    nn.Embedding: FakeQuantizedEmbedding,
    FactoredEmbedding: FakeQuantizedFactors,
}
"""By the class of a layer that dynamic INT8 quantizes: what takes its place."""


@contextmanager
def fake_quantized(model: PreTrainedModel) -> Iterator[None]:
    """Let a model compute within the block what it will compute in INT8, with gradients; its weights stay as they are.

    Products of activations with each other (attention) and normalization remain in full precision, as in the exported
    model.
    """
    plain = {module: type(module) for module in _quantized(model) if type(module) in FAKE_QUANTIZED}
    for module, cls in plain.items():
        module.__class__ = FAKE_QUANTIZED[cls]
    try:
        yield
    finally:
        for module, cls in plain.items():
            module.__class__ = cls


def _quantized(model: PreTrainedModel) -> Iterator[nn.Module]:
    """Yield the modules of a model but the vectors of token types in a family without them, which become a constant."""
    types = None if family_of(model).token_types else base_of(model).get_submodule("embeddings")
    constant = getattr(types, "token_type_embeddings", None)
    yield from (module for module in model.modules() if module is not constant)
