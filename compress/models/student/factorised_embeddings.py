"""Factorised word vectors: the table V x H becomes a product of V x r and r x H.

Lan et al., "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations", 2020 (arXiv:1909.11942),
train them so from the start; here a trained table is factorised by truncated singular value decomposition, the best
approximation of this rank (Eckart and Young, 1936). Most parameters of a small student are word vectors.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.models.encoder_parts import base_of, word_embeddings

UNSEEN = 0.01
"""The count of a token that does not occur. With 1 the many unseen tokens of a large vocabulary decide: on
2,000 rows of SST-2, 64 factors of a MiniLM student's table then cost 2.6 points of accuracy, with almost 0 they cost
0.8, and with equal weights of all tokens 6.0 (before any training; Xeon with AVX-512)."""


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


def set_table(vectors: FactoredEmbedding, table: Tensor, counts: Tensor | None = None) -> None:
    """Set the factors to the best approximation of a table (tokens, width); exact where its rank is not larger.

    ``counts`` of how often each token occurs weight its error.
    """
    short, wide = factorise(table, vectors.embedding_dim, counts)
    with torch.no_grad():
        vectors.weight.copy_(short)
        vectors.widen.weight.copy_(wide.T)


def factorise(table: Tensor, factors: int, counts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the truncated singular value decomposition of ``table``: (tokens, factors) and (factors, width).

    The rows of the second are orthonormal, so the first are the table's coordinates in its principal directions. They
    come from the small matrix of inner products between columns: a decomposition of the table itself would take many
    times its memory.

    Args:
        table: (tokens, width).
        factors: the rank of the product.
        counts: (tokens,) how often each token occurs. The squared error of a token counts as often, so that the product
            is close where the model reads; without them all tokens count alike.
    """
    exact = table.detach().double()
    weighted = exact if counts is None else exact * (counts.to(exact) + UNSEEN)[:, None]
    directions = torch.linalg.eigh(exact.T @ weighted).eigenvectors.flip(1)[:, :factors]
    return (exact @ directions).to(table.dtype), directions.T.to(table.dtype)
