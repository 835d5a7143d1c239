"""A new vocabulary, learned from a corpus by the tokenizers library."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from compress.errors import DataError
from compress.models.read_checkpoint import quiet
from compress.pretrain.pretrain_schema import PretrainVocabulary
from compress.pretrain.text.corpus_pieces import Document, empty_corpus

PAD, UNK, CLS, SEP, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""The special pieces, whose ids are 0 to 4."""
MOST_CHARACTERS: Mapping[str, int] = {"wordpiece": 100_000_000, "bpe": 100_000_000, "unigram": 10_000_000}
"""A vocabulary is learned from the first so many characters, so that its memory does not grow with the corpus; that of
a unigram model also takes by far the longest."""


def train_vocabulary(documents: Iterable[Document], settings: PretrainVocabulary, folder: Path) -> None:
    """Learn a vocabulary and write it as the tokenizer of a BERT."""
    assert settings.size is not None
    tokenizer = KINDS[settings.kind](settings)
    tokenizer.train_from_iterator(first_texts(documents, MOST_CHARACTERS[settings.kind]), trainer=_trainer(settings))
    found = tokenizer.get_vocab_size()
    if found > settings.size:
        raise DataError(
            f"vocabulary.size is {settings.size:,}, but characters, bytes and special pieces alone are {found:,}.",
            hint=f"vocabulary.size: more than {found}",
        )
    if found < settings.size:
        raise DataError(
            f"the texts fill only {found:,} pieces of a vocabulary, and {settings.size:,} are asked for.",
            hint=f"vocabulary.size: {found} or less, or more text",
        )
    cls, sep = tokenizer.token_to_id(CLS), tokenizer.token_to_id(SEP)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}", pair=f"{CLS} $A {SEP} $B:1 {SEP}:1", special_tokens=[(CLS, cls), (SEP, sep)]
    )
    names = {"pad_token": PAD, "unk_token": UNK, "cls_token": CLS, "sep_token": SEP, "mask_token": MASK}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    with quiet():
        PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
            tokenizer_object=tokenizer, model_input_names=inputs, **names
        ).save_pretrained(folder)


def first_texts(documents: Iterable[Document], most: int) -> Iterator[str]:
    """Yield sentences until they have ``most`` characters; without any the corpus is empty."""
    characters = 0
    for document in documents:
        yield from document
        characters += sum(map(len, document))
        if characters >= most:
            return
    if not characters:
        raise empty_corpus()


def _wordpiece(settings: PretrainVocabulary) -> Tokenizer:
    """BERT's own: words are split at spaces and punctuation, then cut from the left into the longest pieces."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNK))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=settings.lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _bpe(settings: PretrainVocabulary) -> Tokenizer:
    """RoBERTa's byte pairs; no text has an unknown piece."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = _normalizer(settings)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _unigram(settings: PretrainVocabulary) -> Tokenizer:
    """SentencePiece's unigram language model: of all ways to cut a word, the most probable one."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = _normalizer(settings)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _normalizer(settings: PretrainVocabulary) -> normalizers.Normalizer:
    if not settings.lowercase:
        return normalizers.NFKC()
    return normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents()])


def _trainer(settings: PretrainVocabulary) -> Any:
    options: dict[str, Any] = {
        "vocab_size": settings.size,
        "special_tokens": list(SPECIAL),
        "show_progress": False,
    }
    if settings.kind == "wordpiece":
        return trainers.WordPieceTrainer(**options)
    if settings.kind == "bpe":
        return trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options)
    return trainers.UnigramTrainer(unk_token=UNK, **options)


KINDS: Mapping[str, Callable[[PretrainVocabulary], Tokenizer]] = {
    "wordpiece": _wordpiece,
    "bpe": _bpe,
    "unigram": _unigram,
}
