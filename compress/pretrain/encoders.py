"""The encoders that pretraining starts from: a new BERT with random weights, or a checkpoint with its word head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from compress.console import Console
from compress.errors import ModelError
from compress.families import max_positions
from compress.models.encoder_parts import family_of
from compress.models.load_save import read_config
from compress.models.read_checkpoint import check_finite, missing_head_weights, read_checkpoint
from compress.models.silence_transformers import quiet
from compress.pretrain.text.packed_examples import SpecialPieces
from compress.recipe.pretrain_schema import EncoderShape

HEAD_WIDTH = 64
"""Width of an attention head where the recipe gives no number of heads."""


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
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads or max(1, shape.hidden // HEAD_WIDTH),
        intermediate_size=shape.ffn or 4 * shape.hidden,
        max_position_embeddings=shape.positions or length,
        hidden_dropout_prob=shape.dropout,
        attention_probs_dropout_prob=shape.dropout,
        pad_token_id=special.pad,
    )
    if shape.hidden % config.num_attention_heads:
        raise ModelError(
            f"shape.hidden ({shape.hidden}) is no multiple of {config.num_attention_heads} heads.",
            hint="shape.heads gives their number",
        )
    return config


def load_encoder(folder: Path, *, pairs: bool, seed: int, console: Console) -> PreTrainedModel:
    """Return a checkpoint with a head for words, and one for ``pairs``; heads that it lacks are random."""
    config = read_config(folder)
    if pairs and family_of(config).name != "bert":
        raise ModelError(
            f"next_sentence needs a BERT; {folder} is of the family {family_of(config).name}.",
            hint="next_sentence: false",
        )
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


def check_positions(config: PreTrainedConfig, length: int, source: str) -> None:
    """Refuse sequences that are longer than the positions of a model."""
    positions = max_positions(config.to_dict(), config.pad_token_id)
    if positions is not None and length > positions:
        raise ModelError(
            f"train.length is {length} pieces, but the model {source} has {positions} positions.",
            hint=f"train.length: {positions} or less",
        )
