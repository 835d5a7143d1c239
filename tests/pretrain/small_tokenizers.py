"""Small tokenizers of every kind, trained on a few general words, and texts of a domain that they cut into pieces."""

import json

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

GENERAL = ["the cat sat on the mat and words of plants in split splits them again them token dist illa tion photo syn"]
ALPHABET = "abcdefghijklmnopqrstuvwxyz.,;:?() zyxwvutsrqponmlkjihgfedcba TDP"
DOMAIN = [
    "The tokenizer splits words, and tokenizers split them.",
    "Distillation of a tokenizer; distillation (again). tokenizer",
    "photosynthesis in plants: photosynthesis, photosynthetic?",
]


def wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([*GENERAL, ALPHABET] * 20, trainer)
    return tokenizer


def bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<s>", "<pad>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(GENERAL * 20, trainer)
    return tokenizer


def unigram(split_first: bool = False) -> Tokenizer:
    tokenizer, metaspace = Tokenizer(models.Unigram()), pre_tokenizers.Metaspace()
    splits = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    tokenizer.pre_tokenizer, tokenizer.decoder = splits if split_first else metaspace, decoders.Metaspace()
    special = ["<s>", "<pad>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=90, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator([*GENERAL, ALPHABET] * 20, trainer)
    return tokenizer


def word_level() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "cat": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def content_of(tokenizer: Tokenizer) -> dict:
    return json.loads(tokenizer.to_str())
