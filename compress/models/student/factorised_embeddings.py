"""Factorised word vectors: the table V x H becomes a product of V x r and r x H.

Lan et al., "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations", 2020 (arXiv:1909.11942),
train them so from the start; here a trained table is factorised by truncated singular value decomposition, the best
approximation of this rank (Eckart and Young, 1936). Most parameters of a small student are word vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.models.encoder_parts import base_of, word_embeddings


class FactoredEmbedding(nn.Embedding):
    """Looks up a short vector and widens it by one matrix shared by all tokens."""

    def __init__(self, tokens: int, factors: int, width: int, padding: int | None) -> None:
        super().__init__(tokens, factors, padding_idx=padding)
        self.widen = nn.Linear(factors, width, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """Return vectors of the full width."""
        widened: Tensor = self.widen(super().forward(input))
        return widened


def factor_count(model: PreTrainedModel) -> int | None:
    """Return the rank of factorised word vectors; None for a plain table."""
    vectors = word_embeddings(model)
    return vectors.embedding_dim if isinstance(vectors, FactoredEmbedding) else None


def embedding_table(vectors: nn.Embedding) -> Tensor:
    """Return the word vectors (tokens, width), multiplied out where they are factorised."""
    table = vectors.weight.detach()
    return table @ vectors.widen.weight.detach().T if isinstance(vectors, FactoredEmbedding) else table


def install_factors(model: PreTrainedModel, factors: int) -> None:
    """Replace a model's word vectors by factorised ones, with weights initialised as in the model."""
    plain = word_embeddings(model)
    factored = FactoredEmbedding(plain.num_embeddings, factors, int(model.config.hidden_size), plain.padding_idx)
    base_of(model).set_input_embeddings(factored)
    for module in (factored, factored.widen):
        model._init_weights(module)  # type: ignore[no-untyped-call]


def set_table(vectors: FactoredEmbedding, table: Tensor) -> None:
    """Set the factors to the best approximation of a table (tokens, width); exact where its rank is not larger."""
    short, wide = factorise(table, vectors.embedding_dim)
    with torch.no_grad():
        vectors.weight.copy_(short)
        vectors.widen.weight.copy_(wide.T)


def factorise(table: Tensor, factors: int) -> tuple[Tensor, Tensor]:
    """Return the truncated singular value decomposition of ``table``: (tokens, factors) and (factors, width).

    The rows of the second are orthonormal, so the first are the table's coordinates in its principal directions. They
    come from the small matrix of inner products between columns: a decomposition of the table itself would take many
    times its memory.
    """
    exact = table.detach().double()
    directions = torch.linalg.eigh(exact.T @ exact).eigenvectors.flip(1)[:, :factors]
    return (exact @ directions).to(table.dtype), directions.T.to(table.dtype)
