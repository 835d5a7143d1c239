"""What counting alone knows about held-out pieces: the losses of unigram and bigram models of the training part.

A model whose masked-LM loss is not below the unigram entropy has learned nothing but how frequent pieces are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compress.pretrain.text.corpus_pieces import Corpus

PRIORS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0)
"""How many observations the unigram distribution counts for after each piece: the bigram model uses the best of these
for the very pieces that it is scored on, which favours it."""


@dataclass(frozen=True)
class NgramLosses:
    """The loss of each held-out piece, by a model that counts."""

    unigram: NDArray[np.float64]
    bigram: NDArray[np.float64]


def ngram_losses(train: Corpus, targets: NDArray[np.int64], before: NDArray[np.int64], separator: int) -> NgramLosses:
    """Return the losses of pieces (count,), given for the bigram the pieces ``before`` them.

    The separators of documents are contexts, but never predicted, so unigrams do not count them.
    Only the pairs that are scored are counted, so memory does not grow with the corpus. Unigrams are smoothed by one
    observation each, bigrams by the unigrams (MacKay and Peto, "A Hierarchical Dirichlet Language Model", 1995).
    """
    size = int(train.info["vocabulary"])
    keys, place = np.unique(before * size + targets, return_inverse=True)
    counts, pairs, last = np.zeros(size, np.int64), np.zeros(len(keys), np.int64), -1
    for block in train.pieces.blocks():
        pieces = block.astype(np.int64)
        counts += np.bincount(pieces, minlength=size)
        contexts = np.concatenate([[last], pieces[:-1]])
        seen = contexts * size + pieces
        found = np.minimum(np.searchsorted(keys, seen), len(keys) - 1)
        pairs += np.bincount(found[keys[found] == seen], minlength=len(keys))
        last = int(pieces[-1])
    words = np.where(np.arange(size) == separator, 0, counts)
    unigram = (words + 1) / (words.sum() + size)
    by_prior = [-np.log((pairs[place] + prior * unigram[targets]) / (counts[before] + prior)) for prior in PRIORS]
    return NgramLosses(-np.log(unigram[targets]), min(by_prior, key=lambda losses: float(losses.mean())))
