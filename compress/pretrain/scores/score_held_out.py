"""Held-out scores of a model, of what it started from, and of what counting predicts, on the same masked pieces."""

from __future__ import annotations

import numpy as np
from transformers import PreTrainedModel

from compress.errors import ModelError, pluralize
from compress.pretrain.report.pretrain_report import HeldOut, HeldOutResult
from compress.pretrain.scores.clustered_mean import Estimate, clustered_mean
from compress.pretrain.scores.held_out import HeldOutScores, sample, score
from compress.pretrain.scores.ngram_entropy import ngram_losses
from compress.pretrain.text.corpus_pieces import Corpus
from compress.pretrain.text.packed_examples import PackedExamples
from compress.recipe.pretrain_schema import MaskedLM


def score_held_out(
    model: PreTrainedModel,
    untouched: PreTrainedModel | None,
    examples: PackedExamples,
    train: Corpus,
    settings: MaskedLM,
) -> HeldOut:
    """Score models on the same masked pieces of held-out sequences, and count what n-grams predict of them."""
    special = examples.special
    chosen = sample(examples)
    scores = score(model, examples, chosen, settings, special.mask)
    _check_finite(scores)
    before = np.where(scores.before == special.cls, special.sep, scores.before)  # a document begins after a separator
    counted = ngram_losses(train, scores.targets, before, special.sep)

    def mean(values: np.ndarray) -> Estimate:
        return clustered_mean(values, scores.documents)

    first = score(untouched, examples, chosen, settings, special.mask) if untouched is not None else None
    if first is not None:
        _check_finite(first)
    return HeldOut(
        documents=len(np.unique(scores.documents)),
        sequences=len(chosen),
        pieces=len(scores.losses),
        trained=_result(scores),
        untouched=_result(first) if first is not None else None,
        unigram=mean(counted.unigram),
        bigram=mean(counted.bigram),
        below_unigram=mean(counted.unigram - scores.losses),
        below_bigram=mean(counted.bigram - scores.losses),
    )


def _check_finite(scores: HeldOutScores) -> None:
    bad = int((~np.isfinite(scores.losses)).sum())
    if bad:
        raise ModelError(
            f"the model's loss is not a finite number at {bad:,} of {pluralize(len(scores.losses), 'held-out piece')}.",
            hint="a lower train.learning_rate, or train.precision: fp32; corpus and packing are kept",
        )


def _result(scores: HeldOutScores) -> HeldOutResult:
    loss = clustered_mean(scores.losses, scores.documents)
    pairs = clustered_mean(scores.pairs_right, scores.pair_documents) if len(scores.pairs_right) else None
    return HeldOutResult(loss=loss, perplexity=loss.exponential(), pairs=pairs)
