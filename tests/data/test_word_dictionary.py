"""The dictionary of words: exact for tokenizers that cut each word by itself, and not used for others."""

import random

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from compress.data import word_dictionary
from compress.data.tokenizer import LONG_WORD, TextTokenizer
from compress.data.word_dictionary import WordDictionary

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = (
    *(
        "a film",
        "film,film",
        "It's",
        "ΟΔΟΣ",
        "ß",
        "İstanbul",
        "e\u0301te\u0301",
        "\u0301a",
        "été",
        "中文字",
        "a中b",
        "",
        " ",
    ),
    *(
        "\t",
        "tab\tbed",
        "line\nend",
        "\r\n",
        "no\u00a0break",
        "zero\u200bwidth",
        "\u0000",
        "\ufeffbom",
        "soft\u00adhyphen",
    ),
    *("[SEP]", "x[SEP]y", "[sep]", "🙂", "👩‍👩‍👧", "ﬁ", "x" * 31, "y" * 40, "z" * 101, "1,000.5", "...", "a-b", "क्षि"),
)


def bert_tokenizer(**options: bool | None) -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(**options)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=SPECIAL)
    made.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made


def encoded(tokenizer: Tokenizer, text: str, pair: str | None, most: int) -> tuple[list[int], list[int], bool]:
    tokenizer.enable_truncation(most, strategy="longest_first")
    found = tokenizer.encode(text) if pair is None else tokenizer.encode(text, pair)
    return found.ids, found.type_ids, bool(found.overflowing)


@pytest.mark.parametrize("options", [{}, {"lowercase": False}, {"strip_accents": False}, {"clean_text": False}])
@pytest.mark.parametrize("kept", [1 << 15, 20])
def test_texts_and_pairs_have_the_tokenizers_pieces(options, kept, monkeypatch) -> None:
    monkeypatch.setattr(word_dictionary, "MOST_WORDS", kept)
    expected, draw = bert_tokenizer(**options), random.Random(3)
    tokens = TextTokenizer(Tokenizer.from_str(expected.to_str()), pad_id=0)
    assert tokens._words is not None
    for _ in range(1500):
        texts = [" ".join(draw.choices(WORDS, k=draw.randint(0, 12))) for _ in range(2)]
        pair, most = draw.choice((None, texts[1])), draw.choice((8, 9, 16, 128))
        found = tokens(texts[0], pair, most)
        assert (found.input_ids, found.token_type_ids, found.truncated) == encoded(expected, texts[0], pair, most)
    assert len(tokens._words._pieces) <= kept


def test_a_word_is_cut_once() -> None:
    tokens = TextTokenizer(bert_tokenizer(), pad_id=0)
    first = tokens("a film film", None, 16)
    assert len(first.input_ids) > 4
    tokens._words._tokenizer = None
    assert tokens("a film film", None, 16) == first


def test_long_words_are_cut_but_not_kept() -> None:
    made, text = bert_tokenizer(), "a " + "x" * 33
    expected = made.encode(text).ids
    tokens = TextTokenizer(made, pad_id=0)
    assert tokens(text, None, 128).input_ids == expected
    assert set(tokens._words._pieces) == {"", "a"}


def test_a_text_of_new_words_is_left_to_the_tokenizer_once_the_dictionary_is_full(monkeypatch) -> None:
    monkeypatch.setattr(word_dictionary, "MOST_WORDS", 3)
    words = TextTokenizer(bert_tokenizer(), pad_id=0)._words
    assert words.pieces("one two three four") is not None
    assert set(words._pieces) == {"", "one", "two"}
    assert words.pieces("one two three four") is None
    assert words.pieces("one two one two three") is not None


def test_a_long_text_is_not_read_to_its_end() -> None:
    tokens = TextTokenizer(bert_tokenizer(), pad_id=0)
    assert tokens(" ".join(f"w{number}" for number in range(10_000)), None, 16).truncated
    assert len(tokens._words._pieces) < 14 * LONG_WORD


@pytest.mark.parametrize(
    "change",
    [
        lambda made: setattr(made, "normalizer", normalizers.Sequence([normalizers.NFD(), normalizers.Strip()])),
        lambda made: setattr(made, "normalizer", normalizers.Replace(" ", "_")),
        lambda made: setattr(made, "pre_tokenizer", pre_tokenizers.Metaspace()),
        lambda made: setattr(made, "pre_tokenizer", pre_tokenizers.ByteLevel()),
        lambda made: setattr(made, "model", models.BPE()),
        lambda made: made.add_tokens([AddedToken("new york")]),
    ],
)
def test_a_tokenizer_that_reads_across_words_has_none(change) -> None:
    made = bert_tokenizer()
    assert WordDictionary.of(made) is not None
    change(made)
    assert WordDictionary.of(made) is None
