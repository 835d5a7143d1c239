"""The tokenizer: tokens, truncation, windows, pad id, threads, and incomplete folders."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from compress.data.tokenizer import TextTokenizer
from compress.errors import DataError, ModelError


@pytest.fixture
def folder(word_folder):
    return word_folder


def test_a_text_and_a_pair(folder):
    tokens = TextTokenizer.load(folder)
    single, pair = tokens("a b", None, 16), tokens("a", "b c", 16)
    assert single.input_ids == [2, 4, 5, 3]
    assert pair.input_ids == [2, 4, 3, 5, 6, 3]
    assert pair.token_type_ids == [0, 0, 0, 1, 1, 1]
    assert not single.truncated


def test_truncation_takes_from_the_longer_text_and_is_reported(folder):
    tokens = TextTokenizer.load(folder)
    cut = tokens("a b c d e", "a b", 7)
    assert len(cut.input_ids) == 7
    assert cut.token_type_ids.count(1) == 3
    assert cut.truncated
    assert not tokens("a", "b", 7).truncated
    assert len(tokens("a b c d e", None, 4).input_ids) == 4
    assert not tokens("a b c d e", None, 16).truncated


def test_padding_and_truncation_of_the_file_are_not_used(folder):
    from tokenizers import Tokenizer

    stored = Tokenizer.from_file(str(folder / "tokenizer.json"))
    stored.enable_padding(length=32)
    stored.enable_truncation(3)
    stored.save(str(folder / "tokenizer.json"))
    assert TextTokenizer.load(folder)("a b c", None, 16).input_ids == [2, 4, 5, 6, 3]


def test_pad_id_comes_from_the_configuration_first(folder):
    assert TextTokenizer.load(folder).pad_id == 0
    (folder / "config.json").write_text('{"pad_token_id": 1}')
    assert TextTokenizer.load(folder).pad_id == 1


@pytest.mark.parametrize("pad", ["[UNK]", {"content": "[UNK]"}])
def test_pad_id_from_the_tokenizer_configuration(folder, pad):
    (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": pad}))
    assert TextTokenizer.load(folder).pad_id == 1


def test_more_tokens_than_positions_are_refused(folder):
    (folder / "config.json").write_text('{"model_type": "bert", "pad_token_id": 0, "max_position_embeddings": 16}')
    tokens = TextTokenizer.load(folder)
    tokens("a", None, 16)
    with pytest.raises(ModelError, match=r"17 tokens long.*16 positions"):
        tokens("a", None, 17)
    with pytest.raises(ModelError, match="the model my-teacher has 16 positions"):
        TextTokenizer.load(folder, "my-teacher")("a", None, 17)


@pytest.mark.parametrize("family", ["roberta", "compress-roberta"])
def test_roberta_counts_positions_from_behind_the_pad_id(folder, family):
    config = {"model_type": family, "pad_token_id": 1, "max_position_embeddings": 18}
    (folder / "config.json").write_text(json.dumps(config))
    assert TextTokenizer.load(folder).longest == 16


def test_no_room_for_text_with_special_tokens(folder):
    with pytest.raises(ModelError, match="no room"):
        TextTokenizer.load(folder)("a", "b", 3)


def test_a_folder_without_tokenizer(tmp_path):
    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        TextTokenizer.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b"\xff\xfe", b'{"model": {"type": "Nonsense"}}'])
def test_a_broken_tokenizer(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelError, match="cannot be read"):
        TextTokenizer.load(tmp_path)


def test_a_broken_configuration(folder):
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json cannot be read"):
        TextTokenizer.load(folder)


def test_a_folder_without_a_padding_token_is_refused(folder):
    stored = (folder / "tokenizer.json").read_text().replace("[PAD]", "nothing")
    (folder / "tokenizer.json").write_text(stored)
    with pytest.raises(ModelError, match="names no padding token"):
        TextTokenizer.load(folder)


def test_windows_share_tokens_and_have_character_spans(word_folder):
    tokens = TextTokenizer.load(word_folder)
    result = tokens.windows("a b c d e", None, 5, 1, 8)
    assert [window.input_ids for window in result] == [[2, 4, 5, 6, 3], [2, 6, 7, 8, 3]]
    assert result[1].spans == [(-1, -1), (4, 5), (6, 7), (8, 9), (-1, -1)]
    assert not any(window.truncated for window in result)
    first, *rest = tokens.windows("a b c d e", None, 5, 1, 1)
    assert (rest, first.input_ids, first.truncated) == ([], [2, 4, 5, 6, 3], True)


@pytest.mark.parametrize(
    ("text", "spans"),
    [("red  fish", [(0, 3), (4, 4), (5, 9)]), (" red fish ", [(1, 4), (5, 9), (10, 10)])],
)
def test_the_space_before_a_word_is_none_of_its_characters(text, spans):
    """SentencePiece has it in the word's token, or in one of its own."""
    vocabulary = {"[UNK]": 0, "▁": 1, "▁red": 2, "▁fish": 3}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    (window,) = TextTokenizer(tokenizer, pad_id=0).windows(text, None, 8, 0, 8)
    assert window.spans == spans


def test_every_window_holds_the_first_text(word_folder):
    result = TextTokenizer.load(word_folder).windows("a", "b c d", 6, 0, 8)
    assert [window.input_ids for window in result] == [[2, 4, 3, 5, 6, 3], [2, 4, 3, 7, 3]]
    assert result[0].spans == [(-1, -1), (-1, -1), (-1, -1), (0, 1), (2, 3), (-1, -1)]
    assert result[1].token_type_ids == [0, 0, 0, 1, 1]


def test_windows_always_move_on(word_folder):
    result = TextTokenizer.load(word_folder).windows("a b c d e", None, 4, 4, 99)
    assert [window.input_ids[1:-1] for window in result] == [[4, 5], [5, 6], [6, 7], [7, 8]]


def test_a_first_text_that_fills_the_window_is_refused(word_folder):
    with pytest.raises(DataError, match="3 tokens leaves no room"):
        TextTokenizer.load(word_folder).windows("a b c", "d", 6, 0, 8)


def test_a_longer_first_text_after_a_shorter_one(word_folder):
    tokens = TextTokenizer.load(word_folder)
    tokens.windows("a", "b", 8, 0, 8)
    assert len(tokens.windows("a b c d", "e", 8, 0, 8)) == 1
    with pytest.raises(DataError, match="10 tokens leaves no room"):
        tokens.windows("a b c d e a b c d e", "e", 8, 0, 8)


def test_cutting_after_windows_is_cutting_again(word_folder):
    tokens = TextTokenizer.load(word_folder)
    tokens.windows("a b c d e", None, 5, 1, 8)
    assert tokens("a b c d e", None, 5).input_ids == [2, 4, 5, 6, 3]


def reference(tokenizer, text, pair, max_tokens):
    """Encode with the library's own truncation, which changes the tokenizer's state."""
    tokenizer.enable_truncation(max_length=max_tokens, strategy="longest_first")
    encoding = tokenizer.encode(text) if pair is None else tokenizer.encode(text, pair)
    return encoding.ids, encoding.type_ids, bool(encoding.overflowing)


@pytest.mark.parametrize("lengths", [(3, 3), (20, 3), (3, 20), (20, 20), (0, 9), (9, 0), (8, None), (30, None)])
@pytest.mark.parametrize("max_tokens", [5, 8, 9, 17, 64])
def test_truncation_is_that_of_the_library(word_folder, lengths, max_tokens):
    texts = ["a good film bad plot very"[: 3 * 40].split() * 6 for _ in lengths]
    text, pair = (None if n is None else " ".join(words[:n]) for words, n in zip(texts, lengths, strict=True))
    expected = reference(Tokenizer.from_file(str(word_folder / "tokenizer.json")), text, pair, max_tokens)
    encoding = TextTokenizer.load(word_folder)(text, pair, max_tokens)
    assert (encoding.input_ids, encoding.token_type_ids, encoding.truncated) == expected


def test_two_long_texts_are_cut_without_the_pairs_of_what_is_left(word_folder, monkeypatch):
    """The library's processor would make all of them: memory by the product of the lengths."""
    tokenizer, long = TextTokenizer.load(word_folder), "good film " * 4_000
    expected = tokenizer("good film " * 20, "good film " * 20, 16)
    monkeypatch.setattr(tokenizer, "_processor", SimpleNamespace(num_special_tokens_to_add=lambda is_pair: 3))
    assert tokenizer(long, long, 16).input_ids == expected.input_ids


def test_texts_of_a_vocabulary_without_the_letter_a_have_their_tokens():
    letters = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "C": 4, "G": 5, "T": 6}
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made = TextTokenizer(tokenizer, 0)
    assert made("C G T", None, 16).input_ids == [2, 4, 5, 6, 3]
    assert made("C", "G T", 16).input_ids == [2, 4, 3, 5, 6, 3]


def test_threads_share_a_tokenizer(word_folder):
    """Texts, pairs and windows of different lengths at once give what each gives alone."""
    tokens, words = (
        TextTokenizer.load(word_folder),
        ["a", "good", "film", "bad", "plot", "very", "not", "it", "was", "so"],
    )
    calls = [
        (words[n % 10] + " good film" * (n % 13), "bad plot " * (n % 7) if n % 2 else None, 8 + n % 5)
        for n in range(400)
    ]

    def encode(call):
        text, pair, length = call
        windows = tokens.windows(text[:12], pair or "a film", length, 2, 3)
        return tokens(text, pair, length), windows

    expected = [encode(call) for call in calls]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(encode, calls)) == expected


@pytest.mark.parametrize("separator", [" ", "\n", "  "])
@pytest.mark.parametrize("name", ["words", "word pieces", "bytes", "sentence pieces"])
def test_a_long_text_is_cut_as_if_it_were_read_to_its_end(name: str, separator: str) -> None:
    tokens = TextTokenizer(trained_tokenizer(name), pad_id=0)
    draw = random.Random(0)
    text = separator.join("".join(draw.choices("abcdé中", k=draw.randint(1, 60))) for _ in range(3000))
    whole = tokens._tokenizer.encode(text)
    whole.truncate(30)
    cut = tokens(text, None, 32)
    assert cut.truncated
    assert [each for each in cut.input_ids if each not in (2, 3)] == [each for each in whole.ids if each not in (2, 3)]
    windows, read = tokens.windows(text, None, 32, 4, 3), tokens._encode
    tokens._encode = lambda text, _: tokens._tokenizer.encode(text)
    assert tokens.windows(text, None, 32, 4, 3) == windows
    tokens._encode = read


@pytest.mark.parametrize("name", ["words", "word pieces", "bytes", "sentence pieces"])
def test_a_long_text_without_spaces_is_cut_as_if_it_were_read_to_its_end(name: str, monkeypatch) -> None:
    tokens = TextTokenizer(trained_tokenizer(name), pad_id=0)
    text = "ab " + "".join(random.Random(0).choices(["中", "é", "中中", "!", "ab", ".", "'s"], k=9000))
    whole, read = tokens._tokenizer.encode(text).ids[:30], []
    original = tokens._tokenizer

    def encode(given: str):
        read.append(len(given))
        return original.encode(given)

    monkeypatch.setattr(tokens, "_tokenizer", SimpleNamespace(pre_tokenizer=original.pre_tokenizer, encode=encode))
    assert tokens._encode(text, 30).ids[:30] == whole
    if name != "sentence pieces":  # whose words are what is between spaces
        assert max(read) < len(text)


def trained_tokenizer(name: str) -> Tokenizer:
    """A tokenizer of a family's kind, with its pieces trained on a few words."""
    made = {
        "words": Tokenizer(models.WordLevel(unk_token="[UNK]")),
        "word pieces": Tokenizer(models.WordPiece(unk_token="[UNK]")),
        "bytes": Tokenizer(models.BPE()),
        "sentence pieces": Tokenizer(models.Unigram()),
    }[name]
    made.pre_tokenizer = {
        "words": pre_tokenizers.Whitespace(),
        "word pieces": pre_tokenizers.BertPreTokenizer(),
        "bytes": pre_tokenizers.ByteLevel(add_prefix_space=False),
        "sentence pieces": pre_tokenizers.Metaspace(),
    }[name]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = {
        "words": trainers.WordLevelTrainer(special_tokens=special),
        "word pieces": trainers.WordPieceTrainer(vocab_size=200, special_tokens=special),
        "bytes": trainers.BpeTrainer(vocab_size=400, special_tokens=special),
        "sentence pieces": trainers.UnigramTrainer(vocab_size=100, special_tokens=special, unk_token="[UNK]"),
    }[name]
    draw = random.Random(1)
    made.train_from_iterator([" ".join("".join(draw.choices("abcdé中", k=5)) for _ in range(300))], trainer, length=1)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return made


def test_a_text_of_one_word_is_read_to_its_end(word_folder) -> None:
    tokens = TextTokenizer.load(word_folder)
    assert tokens("x" * 100_000 + " a", None, 8).input_ids == tokens("x a", None, 8).input_ids
