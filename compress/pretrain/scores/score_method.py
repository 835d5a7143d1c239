"""How well a trained model does on held-out documents what its method trained it for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import ElectraForPreTraining, PreTrainedModel

from compress.data.encode import batches_by_length
from compress.models.fetch import fetch
from compress.models.read_checkpoint import read_checkpoint
from compress.pretrain.distillation.relations import RelationsObjective
from compress.pretrain.distillation.teacher_and_student import load_teacher, start_of_student
from compress.pretrain.encoders import load_encoder
from compress.pretrain.method import Setting
from compress.pretrain.methods.replaced_tokens import GENERATOR, corrupt
from compress.pretrain.report.pretrain_report import HeldOut, MethodScore
from compress.pretrain.scores.clustered_mean import Estimate, clustered_mean
from compress.pretrain.scores.held_out import BATCH, batch_tensors, fixed_masks, sample
from compress.pretrain.scores.score_held_out import score_held_out
from compress.pretrain.text.corpus_pieces import Corpus
from compress.pretrain.text.packed_examples import PackedExamples

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
