"""The vectors of models without attention: one for each word piece, and two of a pool for each n-gram of pieces.

A piece's vector has a learned weight. An n-gram is hashed to two vectors of a pool that all n-grams share and to the
weights of both (Svenstrup et al., "Hash Embeddings", 2017, arXiv:1709.03933), so that there is no dictionary: the hash
is computed from the ids inside the model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compress.ngram_hash import HASHES, multipliers, primes


class NgramHash(nn.Module):
    """Hashes the n-grams of 2 to ``longest`` ids that end at each token."""

    def __init__(self, longest: int, buckets: int) -> None:
        super().__init__()
        self.longest, self.buckets = longest, buckets

    def forward(self, ids: Tensor) -> Tensor:
        """Return the hashes (rows, tokens, n-grams, 3) of ids (rows, tokens + longest - 1), padded at the start."""
        tokens = ids.shape[1] - self.longest + 1
        moduli = torch.tensor(primes(self.buckets), device=ids.device)  # constants: no part of a checkpoint
        factors = torch.tensor(multipliers(self.longest, self.buckets), device=ids.device)
        residues = ids[..., None] % moduli
        last = self.longest - 1
        total = (residues[:, last : last + tokens] * factors[0]) % moduli
        hashes = []
        for back in range(1, self.longest):
            earlier = residues[:, last - back : last - back + tokens]
            total = total + (earlier * factors[back]) % moduli
            hashes.append(total % moduli)
        return torch.stack(hashes, dim=2)


class LightEmbeddings(nn.Module):
    """The vector of each token: of its piece, and of the n-grams that end with it."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.factors or config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, width)
        self.piece_weights = nn.Embedding(config.vocab_size, 1)
        self.longest, self.folded = config.ngrams, False
        if config.ngrams > 1:
            self.hash = NgramHash(config.ngrams, config.buckets)
            self.ngram_embeddings = nn.Embedding(config.buckets, width)
            self.ngram_weights = nn.Embedding(config.buckets, HASHES - 1)
        self.expansion = nn.Linear(width, config.hidden_size, bias=False) if config.factors else None

    def forward(self, ids: Tensor, content: Tensor) -> Tensor:
        """Return vectors (rows, tokens, hidden) of ids (rows, tokens) where ``content`` is 1, and zeros elsewhere."""
        vectors = self.pieces(ids, content)
        if self.longest > 1:
            pooled, weights = self.ngrams(ids, content)
            vectors = vectors + (pooled * weights[..., None]).sum(dim=2)
        return self.expand(vectors)

    @property
    def dtype(self) -> torch.dtype:
        """Of the vectors; single where a quantizer stores them as integers."""
        table: nn.Module = self.word_embeddings
        return table.weight.dtype if isinstance(table, nn.Embedding) else torch.float32

    def expand(self, vectors: Tensor) -> Tensor:
        """Return vectors as wide as the model of those that are stored."""
        return vectors if self.expansion is None else self.expansion(vectors)

    def pieces(self, ids: Tensor, content: Tensor) -> Tensor:
        """Return the weighted vectors of pieces (rows, tokens, width), zeros where ``content`` is 0."""
        weights = content[..., None] if self.folded else self.piece_weights(ids) * content[..., None]
        vectors: Tensor = self.word_embeddings(ids) * weights
        return vectors

    def ngrams(self, ids: Tensor, content: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors (rows, tokens, 2 · n-grams, width) of what ends at each token, and their weights."""
        before = self.longest - 1
        hashes = self.hash(F.pad(ids, (before, 0)))
        padded, tokens = F.pad(content, (before, 0)), ids.shape[1]
        within, present = content, []
        for back in range(1, self.longest):
            within = within * padded[:, before - back : before - back + tokens]
            present.append(within)
        pooled = self.ngram_embeddings(hashes[..., : HASHES - 1].flatten(2))
        weights = self.ngram_weights(hashes[..., HASHES - 1]) * torch.stack(present, dim=2)[..., None]
        return pooled, weights.flatten(2)

    @contextmanager
    def folded_weights(self) -> Iterator[None]:
        """Multiply the vectors of pieces by their weights within the block, so that nothing looks these up.

        Nothing is multiplied where a quantizer stores vectors as integers.
        """
        table: nn.Module = self.word_embeddings
        if not isinstance(table, nn.Embedding):
            yield
            return
        before = self.word_embeddings.weight
        self.word_embeddings.weight = nn.Parameter((before * self.piece_weights.weight).detach())
        self.folded = True
        try:
            yield
        finally:
            self.word_embeddings.weight, self.folded = before, False
