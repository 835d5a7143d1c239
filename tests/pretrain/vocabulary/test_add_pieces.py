import random
from itertools import pairwise

import pytest

from compress.data.tokenizer import whole_texts
from compress.errors import ModelError
from compress.pretrain.vocabulary.add_pieces import AddedPieces, add_pieces
from compress.pretrain.vocabulary.extend_vocabulary import count_words
from tests.pretrain.small_tokenizers import DOMAIN, bpe, content_of, unigram, word_level, wordpiece

KINDS = {"wordpiece": wordpiece, "bpe": bpe, "unigram": unigram, "unigram-split": lambda: unigram(split_first=True)}


@pytest.fixture(params=KINDS)
def tokenizer(request):
    return KINDS[request.param]()


def extended(tokenizer, number: int = 3) -> AddedPieces:
    return add_pieces(content_of(tokenizer), count_words(DOMAIN * 2, tokenizer), number)


def test_frequent_cut_words_become_one_piece_each(tokenizer) -> None:
    counts = count_words(DOMAIN * 2, tokenizer)
    added = extended(tokenizer)
    after = whole_texts(added.content)
    assert len(added.words) == 3
    assert all(counts[first] >= counts[second] for first, second in pairwise(added.words))
    assert [after.encode(word).ids for word in added.words] == [[index] for index in added.parts]
    assert [tuple(tokenizer.encode(word).ids) for word in added.words] == list(added.parts.values())
    assert min(added.parts) == tokenizer.get_vocab_size()
    assert after.get_vocab_size() == tokenizer.get_vocab_size() + 3


def test_everything_else_is_cut_as_before(tokenizer) -> None:
    added = extended(tokenizer)
    after, new = whole_texts(added.content), [word.strip() for word in added.words]
    draw = random.Random(0)
    words = [*" ".join(DOMAIN).split(), "photo", "on2", "(the)", "cat's", "a-b", "x_y", "mat,mat"]
    others = [word for word in words if not any(each in word.lower() for each in map(str.lower, new))]
    for _ in range(200):
        text = " ".join(draw.choices(others, k=6))
        assert after.encode(text).ids == tokenizer.encode(text).ids


def test_neighbours_of_a_new_word_are_cut_as_before(tokenizer) -> None:
    added = extended(tokenizer)
    word, index = added.words[0], min(added.parts)
    text = f"the cat{word if word.startswith(' ') else ' ' + word}, again"
    parts, before = list(added.parts[index]), tokenizer.encode(text).ids
    start = next(i for i in range(len(before)) if before[i : i + len(parts)] == parts)
    expected = [*before[:start], index, *before[start + len(parts) :]]
    assert whole_texts(added.content).encode(text).ids == expected


def test_longer_words_keep_their_pieces() -> None:
    """`tokenizers` occurs: WordPiece and BPE tell it from `tokenizer`, Unigram cannot and leaves the shorter out."""
    for make, expected in ((wordpiece, ()), (bpe, ()), (unigram, (" tokenizer",))):
        tokenizer = make()
        added = extended(tokenizer)
        assert added.left_out == expected
        assert whole_texts(added.content).encode("the tokenizers").ids == tokenizer.encode("the tokenizers").ids


def test_there_are_no_more_pieces_than_cut_words() -> None:
    tokenizer = wordpiece()
    added = add_pieces(content_of(tokenizer), {"photosynthesis": 3, "photosynthetic": 1, "the": 9, "12": 5}, 10)
    assert added.words == ("photosynthesis",)  # the others: rare, one piece already, no word


def test_unknown_characters_have_no_vector_to_start_from() -> None:
    assert add_pieces(content_of(wordpiece()), {"photoß": 5}, 10).words == ()


def test_a_tokenizer_of_whole_words_is_refused() -> None:
    with pytest.raises(ModelError, match="pieces cannot be added to a WordLevel tokenizer"):
        add_pieces(content_of(word_level()), {"cat": 2}, 1)


def test_bpe_that_marks_the_end_of_words_is_refused() -> None:
    content = content_of(bpe())
    content["model"]["end_of_word_suffix"] = "</w>"
    with pytest.raises(ModelError, match="marks the end of words"):
        add_pieces(content, {" photosynthesis": 2}, 1)


def test_bpe_with_pieces_that_no_merge_makes_is_refused() -> None:
    content = content_of(bpe())
    content["model"]["vocab"]["Ġzebra"] = len(content["model"]["vocab"])
    with pytest.raises(ModelError, match="' zebra', which its merges do not make"):
        add_pieces(content, {" photosynthesis": 2}, 1)


def test_unigram_with_added_tokens_after_its_table_is_refused() -> None:
    tokenizer = unigram()
    tokenizer.add_tokens(["<extra>"])
    with pytest.raises(ModelError, match="added tokens have the ids after its table"):
        add_pieces(content_of(tokenizer), {" photosynthesis": 2}, 1)


def test_a_tokenizer_without_words_is_refused() -> None:
    content = content_of(bpe())
    content["pre_tokenizer"] = None
    with pytest.raises(ModelError, match="does not split texts into words"):
        add_pieces(content, {}, 1)
