"""What a method of pretraining gets, and the encoders that it starts from: a new BERT, or a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from compress.console import Console
from compress.errors import ModelError
from compress.models.encoder_parts import family_of
from compress.models.load_save import load_tokenizer, read_config
from compress.models.read_checkpoint import check_finite, missing_head_weights, quiet, read_checkpoint
from compress.pretrain.encoder_limits import check_pairs
from compress.pretrain.pretrain_schema import EncoderShape, PretrainRecipe
from compress.pretrain.text.corpus_pieces import CorpusPart
from compress.pretrain.text.sentence_packing import PackedExamples, SpecialPieces
from compress.train.loop import Evaluate
from compress.train.objective import Objective


def new_bert(
    shape: EncoderShape, vocabulary: int, length: int, special: SpecialPieces, *, pairs: bool, seed: int
) -> PreTrainedModel:
    """Return a BERT with random weights, with a head for words, and one for ``pairs``."""
    config = bert_config(shape, vocabulary, length, special)
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = BertForPreTraining(config) if pairs else BertForMaskedLM(config)
    model.train(False)
    return model


def bert_config(shape: EncoderShape, vocabulary: int, length: int, special: SpecialPieces) -> BertConfig:
    """Return the config of a new BERT."""
    assert shape.hidden is not None
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.head_count,
        intermediate_size=shape.ffn or 4 * shape.hidden,
        max_position_embeddings=shape.positions or length,
        hidden_dropout_prob=shape.dropout,
        attention_probs_dropout_prob=shape.dropout,
        pad_token_id=special.pad,
    )


def load_encoder(folder: Path, *, pairs: bool, seed: int, console: Console) -> PreTrainedModel:
    """Return a checkpoint with a head for words, and one for ``pairs``; heads that it lacks are random."""
    if pairs:
        check_pairs(read_config(folder).to_dict(), str(folder))
    auto = BertForPreTraining if pairs else AutoModelForMaskedLM
    return load_with_head(auto, folder, seed, console)


def load_with_head(auto: Any, folder: Path, seed: int, console: Console) -> PreTrainedModel:
    """Return a checkpoint with the heads of a class of transformers; those that it lacks are random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, report = read_checkpoint(auto, folder)
    missing = missing_head_weights(model, report, folder)
    check_finite(model, folder)
    if missing:
        console.warn(
            f"{folder} has no head for {_kinds(missing)}: a new one starts with random weights"
            f" ({len(missing)} of them, {missing[0]} …)"
        )
    model.train(False)
    return model


def _kinds(missing: list[str]) -> str:
    """Return what the missing weights of heads predict."""
    kinds = {
        "seq_relationship": "pairs of sentences",
        "discriminator_predictions": "replaced pieces",
        "": "words",
    }
    found = {next(kind for part, kind in kinds.items() if part in name) for name in missing}
    return " and ".join(sorted(found, reverse=True))


def special_pieces(tokenizer: PreTrainedTokenizerBase, source: str) -> SpecialPieces:
    """Return the special pieces of a tokenizer; one that lacks some cannot be pretrained with."""
    names = {"pad": "pad_token", "cls": "cls_token", "sep": "sep_token", "mask": "mask_token"}
    ids = {name: getattr(tokenizer, f"{key}_id") for name, key in names.items()}
    absent = [names[name] for name, value in ids.items() if value is None]
    if absent:
        raise ModelError(f"the tokenizer of {source} has no {', '.join(absent)}.")
    others = tuple(sorted(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}))
    return SpecialPieces(**ids, others=others)


@dataclass(frozen=True)
class PretrainData:
    """What a model is pretrained on, and the tokenizer that cut it into pieces."""

    corpus: Path
    """As `corpus.write_corpus` wrote it."""
    packing: Path
    """The folder of packed sequences."""
    tokenizer: PreTrainedTokenizerBase
    special: SpecialPieces
    vocabulary: int
    """Pieces of the tokenizer."""

    @classmethod
    def load(cls, corpus: Path, packing: Path, tokenizer: Path) -> PretrainData:
        """Open the folders of the corpus, its packing, and the tokenizer."""
        loaded = load_tokenizer(tokenizer)
        return cls(corpus, packing, loaded, special_pieces(loaded, str(tokenizer)), len(loaded))

    def examples(self, model: PreTrainedModel, part: CorpusPart, length: int) -> PackedExamples:
        """Return the sequences of a part, with the inputs of a model."""
        types = family_of(model).token_types
        return PackedExamples(self.corpus, self.packing, part, length, self.special, types)


@dataclass(frozen=True)
class Setting:
    """Everything that a method of pretraining builds its model and losses from."""

    recipe: PretrainRecipe
    data: PretrainData
    start: Path | None
    """The checkpoint that training goes on from; None for a new model."""
    console: Console
    cards: Sequence[Path] = ()


@dataclass(frozen=True)
class Method:
    """A model and how it is trained."""

    model: PreTrainedModel
    objective: Callable[[int], Objective]
    """The losses of a training that begins at this step."""
    evaluate: Evaluate
    """The loss on held-out sequences that the best weights are chosen by."""
    products: Callable[[PreTrainedModel], Mapping[str, PreTrainedModel]] = lambda trained: {"": trained}
    """What is saved of the trained model, by the name of the folder; that of the result itself is empty."""
