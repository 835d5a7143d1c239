"""A two-layer random model of any family with a character tokenizer, for tests and `run --smoke`."""

import string
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    BertTokenizer,
    PreTrainedTokenizerBase,
)

from compress.families import family_named
from compress.model_folder.tokenizer_files import write_tokenizer_files
from compress.models.read_checkpoint import quiet

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
HIDDEN, LAYERS, HEADS, FFN = 32, 2, 4, 64


def write_tiny_model(folder: Path, family: str, seed: int = 0, *, masked: bool = False) -> None:
    """Write a model without a head (or a masked language model) and its tokenizer to ``folder``."""
    tokenizer, known = tiny_tokenizer(family), family_named(family)
    config = AutoConfig.for_model(
        known.name,
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=514,
        pad_token_id=SPECIAL.index("[PAD]"),
        bos_token_id=SPECIAL.index("[CLS]"),
        eos_token_id=SPECIAL.index("[SEP]"),
        cls_token_id=SPECIAL.index("[CLS]"),
        sep_token_id=SPECIAL.index("[SEP]"),
        **{known.ffn_key: FFN, **known.tiny_sizes},
    )
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model_class = AutoModelForMaskedLM if masked else AutoModel
        model_class.from_config(config).save_pretrained(folder)  # type: ignore[no-untyped-call]
        tokenizer.save_pretrained(folder)
    write_tokenizer_files(folder, None)


def tiny_tokenizer(family: str) -> PreTrainedTokenizerBase:
    """Return a WordPiece tokenizer over letters and digits, with the inputs of the family."""
    letters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    return BertTokenizer(vocab=vocabulary, model_input_names=list(family_named(family).inputs))
