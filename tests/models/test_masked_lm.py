"""Masked language models: what is hidden, what the model sees of a text, and which words it may say."""

import pytest
import torch
from transformers import AutoModelForMaskedLM

from compress.errors import ModelError
from compress.models.masked_lm import MaskedModel, MaskedWord
from compress.models.tiny import write_tiny_model

FAMILIES = ("bert", "roberta", "distilbert", "albert", "electra", "mobilebert", "modernbert")


def pieces(model, encoded):
    return " ".join(model._tokenizer.convert_ids_to_tokens(encoded))


def test_masked_word_is_one_mask_token(masked_model):
    assert pieces(masked_model, masked_model.encode(MaskedWord("a bcd e", 2, 5))) == "[CLS] a [MASK] e [SEP]"
    assert pieces(masked_model, masked_model.encode(MaskedWord("a", 0, 1))) == "[CLS] [MASK] [SEP]"


def test_long_text_is_cut_around_the_word(masked_model):
    text = " ".join("abcdefgh"[index % 8] for index in range(300))
    for start in (0, 200, 400, 598):
        encoded = masked_model.encode(MaskedWord(text, start, start + 1))
        assert len(encoded) == 128
        index = pieces(masked_model, encoded).split().index("[MASK]")
        around = text[:start] + "_" + text[start + 1 :]
        shown = pieces(masked_model, encoded).replace("[MASK]", "_").removeprefix("[CLS] ").removesuffix(" [SEP]")
        assert shown in around
        assert start in (0, 598) or index == 64


def test_text_may_contain_the_mask_token(masked_model):
    text = "a [MASK] b c [MASK]"
    shown = pieces(masked_model, masked_model.encode(MaskedWord(text, 11, 12)))
    assert shown == "[CLS] a [PAD] b [MASK] [PAD] [SEP]"


@pytest.mark.parametrize("family", FAMILIES)
def test_candidates_are_the_most_likely_words(family, tmp_path):
    """Against the model asked about each text alone, with all it says."""
    write_tiny_model(tmp_path, family, masked=True)
    ours, theirs = MaskedModel.load(str(tmp_path)), AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    hidden = [MaskedWord("a bc d", 2, 4), MaskedWord("a b c d e f g", 12, 13), MaskedWord("x", 0, 1)]
    encoded = [ours.encode(word) for word in hidden]
    vocabulary = ours._tokenizer.get_vocab()
    words = {piece: number for piece, number in vocabulary.items() if piece.isalpha()}
    result = ours.candidates(encoded, 5)
    for line, predicted in zip(encoded, result, strict=True):
        with torch.no_grad():
            logits = theirs(input_ids=torch.tensor([line])).logits[0, line.index(vocabulary["[MASK]"])]
        best = sorted(words, key=lambda piece: -logits[words[piece]].item())[:5]
        assert predicted == best


def test_candidates_are_complete_words(masked_model):
    (result,) = masked_model.candidates([masked_model.encode(MaskedWord("a", 0, 1))], 1000)
    assert sorted(result) == sorted("abcdefghijklmnopqrstuvwxyz")


def test_model_without_masked_lm_head_is_refused(tmp_path):
    write_tiny_model(tmp_path, "bert")
    with pytest.raises(ModelError, match="is not a masked language model: it has no weights for cls"):
        MaskedModel.load(str(tmp_path))


def test_folder_without_weights_is_refused(masked_folder, tmp_path):
    for file in masked_folder.iterdir():
        if file.suffix == ".json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ModelError, match="has no weights"):
        MaskedModel.load(str(tmp_path))


def test_tokenizer_without_mask_token_is_refused(masked_model, tiny_tokenizer):
    with pytest.raises(ModelError, match="has no mask token"):
        MaskedModel(masked_model._model, tiny_tokenizer)
