import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM

from compress.errors import ModelError
from compress.families import FAMILIES
from compress.models.encoder_parts import word_embeddings
from compress.models.student.factorised_embeddings import install_factors
from compress.models.tiny import write_tiny_model
from compress.pretrain.vocabulary.extend_vocabulary import add_vectors, count_words
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


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "mobilebert"])
def test_new_rows_are_means_in_input_and_output(family: str, tmp_path) -> None:
    write_tiny_model(tmp_path, family, masked=True)
    model = AutoModelForMaskedLM.from_pretrained(tmp_path)
    with torch.no_grad():  # so that the new bias is not zero by itself
        if model.get_output_embeddings().bias is not None:
            model.get_output_embeddings().bias.uniform_()
    size = model.config.vocab_size
    before = model(torch.tensor([[2, 7, 9, 3]])).logits
    parts = {size: (7, 9), size + 1: (8,)}
    add_vectors(model, parts)
    model.save_pretrained(tmp_path)
    model = AutoModelForMaskedLM.from_pretrained(tmp_path)
    logits = model(torch.tensor([[2, 7, 9, 3]])).logits
    assert model.config.vocab_size == word_embeddings(model).num_embeddings == logits.shape[-1] == size + 2
    torch.testing.assert_close(logits[..., :size], before)
    torch.testing.assert_close(logits[..., size], before[..., [7, 9]].mean(dim=-1))
    torch.testing.assert_close(logits[..., size + 1], before[..., 8])
    assert torch.equal(word_embeddings(model).weight[size], word_embeddings(model).weight[[7, 9]].mean(dim=0))


def test_an_encoder_without_a_head_and_a_padded_table(tmp_path) -> None:
    write_tiny_model(tmp_path, "bert")
    model = AutoModel.from_pretrained(tmp_path)
    size = model.config.vocab_size
    add_vectors(model, {size - 1: (7, 9)})
    assert model.config.vocab_size == size
    assert torch.equal(word_embeddings(model).weight[-1], word_embeddings(model).weight[[7, 9]].mean(dim=0))


def test_an_output_layer_of_two_parts_is_refused(tmp_path) -> None:
    write_tiny_model(tmp_path, "mobilebert")
    with pytest.raises(ModelError, match="output layer has two parts"):
        add_vectors(AutoModel.from_pretrained(tmp_path), {101: (7, 9)})


def test_factorised_vectors_are_refused(tmp_path) -> None:
    write_tiny_model(tmp_path, "bert")
    model = AutoModel.from_pretrained(tmp_path)
    install_factors(model, 4)
    with pytest.raises(ModelError, match="word vectors are factorised"):
        add_vectors(model, {model.config.vocab_size: (7, 9)})
