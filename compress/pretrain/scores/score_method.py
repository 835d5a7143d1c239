"""How well a trained model does on held-out documents what its method trained it for.

Beside it, on the same masked pieces: the model it started from, and what counting alone predicts.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import ElectraForPreTraining, PreTrainedModel

from compress.data.encode import batches_by_length
from compress.errors import ModelError, pluralize
from compress.models.fetch import fetch
from compress.models.read_checkpoint import read_checkpoint
from compress.pretrain.encoders import Setting, load_encoder
from compress.pretrain.methods.general_distillation import load_teacher, start_of_student
from compress.pretrain.methods.relations import RelationsObjective
from compress.pretrain.methods.replaced_tokens import GENERATOR, corrupt
from compress.pretrain.pretrain_report import HeldOut, HeldOutResult, MethodScore
from compress.pretrain.pretrain_schema import MaskedLM
from compress.pretrain.scores.clustered_mean import Estimate, clustered_mean
from compress.pretrain.scores.held_out import BATCH, HeldOutScores, batch_tensors, fixed_masks, sample, score
from compress.pretrain.text.corpus_pieces import Corpus
from compress.pretrain.text.sentence_packing import PackedExamples

MOST_RELATIONS = 300
"""Held-out sequences whose relations are compared, one by one."""


def score_method(setting: Setting, folder: Path) -> tuple[HeldOut | None, tuple[MethodScore, ...]]:
    """Return the scores of masked pieces, where the method has a word head, and those of the method's own.

    Args:
        setting: that of the training.
        folder: of the trained model.
    """
    distill = setting.recipe.distill
    if distill is not None and distill.method == "relations":
        return None, (_relations(setting, folder),)
    if setting.recipe.replaced_tokens is not None:
        generator = _word_model(setting, folder / GENERATOR)
        model = read_checkpoint(ElectraForPreTraining, folder)[0].train(False)
        return _masked_pieces(setting, generator, None), _detection(setting, model, generator)
    start = _word_model(setting, setting.start) if setting.start else None
    return _masked_pieces(setting, _word_model(setting, folder), start), ()


def _word_model(setting: Setting, folder: Path) -> PreTrainedModel:
    recipe = setting.recipe
    return load_encoder(folder, pairs=recipe.next_sentence, seed=recipe.seed, console=setting.console)


def _masked_pieces(setting: Setting, model: PreTrainedModel, start: PreTrainedModel | None) -> HeldOut:
    corpus = Corpus(setting.data.corpus, "train")
    return score_held_out(model, start, _held_out(setting, model), corpus, setting.recipe.masked_lm)


def _held_out(setting: Setting, model: PreTrainedModel) -> PackedExamples:
    return setting.data.examples(model, "held_out", setting.recipe.train.length)


@torch.no_grad()
def _detection(setting: Setting, model: PreTrainedModel, generator: PreTrainedModel) -> tuple[MethodScore, ...]:
    """Return the shares of replaced pieces that the model finds, and of true ones that it takes for replaced."""
    examples = _held_out(setting, model)
    masks = fixed_masks(setting.recipe.masked_lm, setting.data.special.mask)
    chosen, found = sample(examples), list[tuple[Tensor, Tensor, Tensor]]()
    for batch in batches_by_length(examples.lengths[chosen], BATCH):
        tensors = batch_tensors(examples, chosen[batch], model.device)
        drawn = corrupt(generator, tensors, masks)
        logits = model(
            input_ids=drawn.ids,
            attention_mask=tensors["attention_mask"],
            token_type_ids=tensors["token_type_ids"],
        ).logits
        real = tensors["attention_mask"].bool()
        documents = torch.from_numpy(examples.documents(chosen[batch]))[:, None].expand_as(real)
        found.append(((logits > 0)[real], (drawn.ids != tensors["input_ids"])[real], documents[real]))
    said, replaced, document = (torch.cat(parts).numpy() for parts in zip(*found, strict=True))
    return tuple(
        MethodScore(name=name, trained=clustered_mean(said[at].astype(np.float64), document[at]))
        for name, at in (("replaced pieces found", replaced), ("true pieces taken for replaced", ~replaced))
        if at.any()  # of little text the generator may replace nothing
    )


def _relations(setting: Setting, folder: Path) -> MethodScore:
    """Return the loss of relations to the teacher's, of the trained student and of its start."""
    distill = setting.recipe.distill
    assert distill is not None
    teacher = load_teacher(fetch(distill.teacher.source, distill.teacher.revision, setting.cards))
    objective, trained, start = RelationsObjective(teacher), load_teacher(folder), start_of_student(setting, teacher)

    return MethodScore(
        name="relations loss",
        trained=_relation_loss(setting, objective, trained),
        start=_relation_loss(setting, objective, start),
    )


@torch.no_grad()
def _relation_loss(setting: Setting, objective: RelationsObjective, model: PreTrainedModel) -> Estimate:
    examples = _held_out(setting, model)
    chosen = sample(examples)
    chosen = chosen[:: max(1, -(-len(chosen) // MOST_RELATIONS))]
    losses = [
        float(sum(objective(model, batch_tensors(examples, each[None], model.device)).values())) for each in chosen
    ]
    return clustered_mean(np.array(losses), examples.documents(chosen))


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
