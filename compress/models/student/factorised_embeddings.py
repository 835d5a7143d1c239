"""Word vectors as a product: V x H becomes V x r and r x H.

Lan et al., "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations", 2020 (arXiv:1909.11942),
train them so from the start; here a trained table is split by truncated singular value decomposition, which no other
product of this rank comes nearer to (Eckart and Young, 1936). Of a small student most parameters are word vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.models.encoder_parts import base_of


class FactoredEmbedding(nn.Embedding):
    """Looks up a short vector and widens it by one matrix that all pieces share."""

    def __init__(self, pieces: int, factors: int, width: int, padding: int | None) -> None:
        super().__init__(pieces, factors, padding_idx=padding)
        self.widen = nn.Linear(factors, width, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """Vectors of the full width."""
        widened: Tensor = self.widen(super().forward(input))
        return widened


def word_embeddings(model: PreTrainedModel) -> nn.Embedding:
    """The module that looks up word vectors."""
    vectors = base_of(model).get_input_embeddings()
    assert isinstance(vectors, nn.Embedding)
    return vectors


def factor_count(model: PreTrainedModel) -> int | None:
    """How many numbers a piece has where word vectors are a product; None where they are a plain table."""
    vectors = word_embeddings(model)
    return vectors.embedding_dim if isinstance(vectors, FactoredEmbedding) else None


def embedding_table(vectors: nn.Embedding) -> Tensor:
    """The word vectors (pieces, width), multiplied out where they are a product."""
    table = vectors.weight.detach()
    return table @ vectors.widen.weight.detach().T if isinstance(vectors, FactoredEmbedding) else table


def install_factors(model: PreTrainedModel, factors: int) -> None:
    """Have a model look its word vectors up in a product, with weights drawn as the model draws them."""
    plain = word_embeddings(model)
    made = FactoredEmbedding(plain.num_embeddings, factors, int(model.config.hidden_size), plain.padding_idx)
    base_of(model).set_input_embeddings(made)
    for module in (made, made.widen):
        model._init_weights(module)  # type: ignore[no-untyped-call]


def set_table(vectors: FactoredEmbedding, table: Tensor) -> None:
    """Set the product to the best approximation of a table (pieces, width); the table itself from its rank on."""
    short, wide = factorise(table, vectors.embedding_dim)
    with torch.no_grad():
        vectors.weight.copy_(short)
        vectors.widen.weight.copy_(wide.T)


def factorise(table: Tensor, factors: int) -> tuple[Tensor, Tensor]:
    """The truncated singular value decomposition of ``table``: (pieces, factors) and (factors, width).

    The rows of the second are orthonormal, so the first are the table's coordinates in its principal directions. They
    come from the small matrix of inner products between columns: a decomposition of the table itself would take many
    times its memory.
    """
    exact = table.detach().double()
    directions = torch.linalg.eigh(exact.T @ exact).eigenvectors.flip(1)[:, :factors]
    return (exact @ directions).to(table.dtype), directions.T.to(table.dtype)
