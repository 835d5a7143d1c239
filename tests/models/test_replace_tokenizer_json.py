import json

from transformers import AutoTokenizer, RobertaTokenizer

from compress.models.replace_tokenizer_json import replace_tokenizer_json
from tests.pretrain.small_tokenizers import bpe, content_of


def test_words_that_are_looked_up_before_merges_survive_saving(tmp_path) -> None:
    """RoBERTa's own class would make the model anew, without this setting."""
    model = content_of(bpe())["model"]
    vocabulary = {**model["vocab"], "<unk>": 330, "</s>": 331, "<mask>": 332}
    tokenizer = RobertaTokenizer(vocab=vocabulary, merges=[tuple(pair) for pair in model["merges"]])
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    content["model"]["vocab"]["Ġtokenizer"] = 333
    content["model"]["ignore_merges"] = True
    replace_tokenizer_json(tokenizer, content, None).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "roberta"}))
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "the tokenizer of tokenizers"
    assert loaded(text)["input_ids"].count(333) == 1
    assert loaded.mask_token_id == tokenizer.mask_token_id
    assert loaded.model_input_names == tokenizer.model_input_names
    assert set(loaded(text)) == set(tokenizer(text))
    assert loaded("the")["input_ids"] == tokenizer("the")["input_ids"]
