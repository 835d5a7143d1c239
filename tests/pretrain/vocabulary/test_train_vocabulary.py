"""New vocabularies have the size that was asked for, and transformers reads their tokenizers."""

import pytest
from transformers import AutoTokenizer

from compress.errors import DataError
from compress.pretrain.pretrain_schema import PretrainVocabulary
from compress.pretrain.vocabulary.train_vocabulary import SPECIAL, first_texts, train_vocabulary

SIZES = {"wordpiece": 120, "bpe": 320, "unigram": 120}


@pytest.mark.parametrize("kind", SIZES)
def test_every_kind_is_a_tokenizer_of_transformers(kind, made_documents, tmp_path):
    train_vocabulary(made_documents, PretrainVocabulary(kind=kind, size=SIZES[kind]), tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == SIZES[kind]
    assert tuple(tokenizer.convert_ids_to_tokens(range(5))) == SPECIAL
    pair = tokenizer("Abc def", "ghi")
    assert pair["input_ids"][0] == tokenizer.cls_token_id
    assert pair["input_ids"].count(tokenizer.sep_token_id) == 2
    assert set(pair["token_type_ids"]) == {0, 1}
    assert tokenizer("ABC").input_ids == tokenizer("abc").input_ids
    assert tokenizer.decode(tokenizer("abc def", add_special_tokens=False).input_ids).strip() == "abc def"


@pytest.mark.parametrize("kind", SIZES)
def test_more_pieces_than_the_texts_fill_are_refused(kind, tmp_path):
    with pytest.raises(DataError, match="of a vocabulary, and 2,000 are asked for"):
        train_vocabulary([["abc def."], ["ghi abc."]], PretrainVocabulary(kind=kind, size=2_000), tmp_path)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_fewer_pieces_than_the_alphabet_are_refused(kind, tmp_path):
    texts = [["".join(map(chr, range(0x3B1, 0x3B1 + 24))), *(chr(0x4E00 + each) for each in range(100))]]
    with pytest.raises(DataError, match="characters, bytes and special pieces alone"):
        train_vocabulary(texts, PretrainVocabulary(kind=kind, size=100), tmp_path)


def test_an_empty_corpus_is_refused(tmp_path):
    with pytest.raises(DataError, match="the corpus is empty"):
        train_vocabulary([], PretrainVocabulary(size=100), tmp_path)


def test_only_the_first_texts_are_read():
    stream = iter([["abc"], ["def", "ghi"], ["never read"]])
    assert list(first_texts(stream, 9)) == ["abc", "def", "ghi"]
    assert next(stream) == ["never read"]
