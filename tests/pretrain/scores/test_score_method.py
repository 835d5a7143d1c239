"""N-gram losses are what counting by hand gives."""

import numpy as np

from compress.pretrain.scores.score_method import PRIORS, ngram_losses
from compress.pretrain.text.corpus_pieces import Corpus

SEPARATOR = 3


def test_losses_are_those_of_counts(corpus_folder):
    train, held_out = Corpus(corpus_folder, "train"), Corpus(corpus_folder, "held_out")
    pieces, size = train.pieces.values.astype(int), 150
    targets, before = held_out.pieces.values[1:400].astype(int), held_out.pieces.values[:399].astype(int)
    counts = np.bincount(pieces, minlength=size)
    pairs = np.zeros((size, size), int)
    np.add.at(pairs, (pieces[:-1], pieces[1:]), 1)
    words = counts.copy()
    words[SEPARATOR] = 0
    unigram = (words + 1) / (words.sum() + size)
    bigram = min(
        (-np.log((pairs[before, targets] + prior * unigram[targets]) / (counts[before] + prior)) for prior in PRIORS),
        key=np.mean,
    )
    losses = ngram_losses(train, targets, before, SEPARATOR)
    np.testing.assert_allclose(losses.unigram, -np.log(unigram[targets]))
    np.testing.assert_allclose(losses.bigram, bigram)
    assert losses.bigram.mean() < losses.unigram.mean()
