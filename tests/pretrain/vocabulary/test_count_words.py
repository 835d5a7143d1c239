import pytest

from compress.pretrain.vocabulary.count_words import count_words
from tests.pretrain.small_tokenizers import bpe, unigram, wordpiece


def test_words_are_normalized_as_the_tokenizer_does() -> None:
    assert count_words(["Café, CAFE (cafe)"], wordpiece()) == {"cafe": 3}


@pytest.mark.parametrize("tokenizer", [unigram(), unigram(split_first=True)], ids=["spaces", "split"])
def test_punctuation_beside_a_word_is_no_part_of_it(tokenizer) -> None:
    assert count_words(["word, word"], tokenizer) == {" word": 2}


def test_bytes_distinguish_words_after_a_space() -> None:
    assert count_words(["word word"], bpe()) == {"word": 1, " word": 1}


def test_rare_words_are_forgotten_where_there_are_too_many() -> None:
    texts = ["often seen often seen", *(f"rare{number}" for number in range(50))]
    counts = count_words(texts, wordpiece(), most=10)
    assert len(counts) <= 10
    assert counts["often"] == counts["seen"] == 2
