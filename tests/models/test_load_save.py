import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer, RobertaTokenizer

from compress.errors import ModelError
from compress.families import FAMILIES
from compress.model_folder.model_info import FolderInfo, TaskInfo, read_info
from compress.models.checkpoint_task import output_names
from compress.models.load_save import (
    fit_head,
    has_task_head,
    load,
    load_model,
    load_tokenizer,
    replace_tokenizer_json,
    save_model,
)
from compress.models.read_checkpoint import quiet
from tests.conftest import same_weights
from tests.pretrain.small_tokenizers import bpe, content_of

SAFE, CONFIG = "model.safetensors", "config.json"


@pytest.fixture
def plain(tiny_model, tiny_tokenizer, tmp_path):
    """A plain Hugging Face folder: no compress.json."""

    def write(model=None):
        with quiet():
            (model or tiny_model("bert")).save_pretrained(tmp_path)
            tiny_tokenizer.save_pretrained(tmp_path)
        return tmp_path

    return write


def task_of(*labels, kind="classification"):
    return TaskInfo(name="films", kind=kind, text=("text",), labels=labels, metric="accuracy", max_length=32)


@pytest.mark.parametrize("name", FAMILIES)
def test_saved_folder_is_restored_bit_for_bit(name, tiny_model, tiny_folder):
    model = tiny_model(name)
    folder = tiny_folder(model)
    assert same_weights(load(folder), model)
    info = read_info(folder)
    assert info.inputs == FAMILIES[name].inputs
    assert info.shape.family == name
    with quiet():  # and without us
        assert same_weights(AutoModelForSequenceClassification.from_pretrained(folder), model)


def test_head_that_fits_the_task_is_reused(plain, tiny_model, tiny_task):
    model = tiny_model("bert")
    folder = plain(model)
    assert has_task_head(folder, tiny_task)
    assert same_weights(load_model(folder, tiny_task), model)


def test_labels_that_differ_in_case_alone_keep_their_rows(plain, tiny_model):
    model = tiny_model("bert", labels=("NA", "na", "yes"))
    folder = plain(model)
    assert same_weights(load_model(folder, task_of("NA", "na", "yes")), model)
    swapped = load_model(folder, task_of("na", "NA", "yes"))
    assert torch.equal(swapped.classifier.weight, model.classifier.weight[[1, 0, 2]])
    assert not has_task_head(folder, task_of("na", "NA", "Yes"))  # it could be either


@pytest.mark.parametrize("name", FAMILIES)
def test_labels_are_matched_by_name(name, plain, tiny_model, batch):
    model = tiny_model(name, labels=("Good", "bad", "odd"))
    task = task_of("odd", "good", "bad")
    folder = plain(model)
    assert has_task_head(folder, task)
    again = load_model(folder, task)
    assert list(again.config.id2label.values()) == ["odd", "good", "bad"]
    again.train(False)
    inputs = batch(model)
    assert torch.allclose(again(**inputs).logits, model(**inputs).logits[:, [2, 0, 1]], atol=1e-6)


@pytest.mark.parametrize("labels", [("no", "yes"), ("a", "b", "c")])
def test_other_head_is_initialised_from_the_seed(labels, plain, tiny_model):
    folder = plain()
    task = task_of(*labels)
    assert not has_task_head(folder, task)
    first, again, other = (load_model(folder, task, seed=seed) for seed in (1, 1, 2))
    assert first.classifier.out_features == len(labels)
    assert torch.equal(first.classifier.weight, again.classifier.weight)
    assert not torch.equal(first.classifier.weight, other.classifier.weight)
    assert not torch.equal(first.classifier.weight[:2], tiny_model("bert").classifier.weight)
    assert torch.equal(first.bert.pooler.dense.weight, tiny_model("bert").bert.pooler.dense.weight)


def test_regression_has_one_output(plain, tiny_model):
    folder = plain(tiny_model("bert", labels=("score",)))
    task = task_of(kind="regression")
    assert has_task_head(folder, task)
    assert load_model(folder, task).config.problem_type == "regression"
    assert not has_task_head(plain(), task)


@pytest.mark.parametrize("kind", ["multiple_choice", "ranking"])
def test_choices_and_candidates_have_one_output(kind, plain, tiny_model, tiny_folder):
    task = task_of(kind=kind)
    folder = plain(tiny_model("bert", labels=("LABEL_0",)))  # a cross-encoder from elsewhere
    assert has_task_head(folder, task)
    model = load_model(folder, task)
    assert (model.config.num_labels, model.config.problem_type) == (1, None)
    fit_head(model, task)
    assert has_task_head(tiny_folder(model, task), task)
    other = task_of(kind="regression")  # a score among others is no number with a meaning of its own
    assert not has_task_head(tiny_folder(model, task), other)
    assert not has_task_head(tiny_folder(load_model(folder, other), other), task)


def test_span_head_has_two_outputs(plain, tiny_model, tiny_folder):
    task = task_of(kind="question_answering")
    folder = plain(tiny_model("bert", labels=("a", "b", "c")))
    assert not has_task_head(folder, task)
    model = load_model(folder, task)
    assert model.qa_outputs.out_features == model.config.num_labels == 2
    assert has_task_head(tiny_folder(model, task), task)
    assert has_task_head(plain(tiny_model("bert", head="ForQuestionAnswering")), task)


def test_a_class_may_be_called_as_the_weight_of_a_window(tiny_task):
    task = tiny_task.model_copy(update={"long": "attention", "labels": ("height", "weight")})
    assert output_names(task) == ("height", "weight", "weight of a window")
    assert output_names(tiny_task.model_copy(update={"long": "attention"}))[-1] == "weight"


def test_weighted_windows_add_one_output(plain, tiny_model, tiny_folder, tiny_task):
    task = tiny_task.model_copy(update={"long": "attention"})
    folder = plain()
    assert not has_task_head(folder, task)
    model = load_model(folder, task)
    assert model.config.id2label == {0: "bad", 1: "good", 2: "weight"}
    made = tiny_folder(model, task)
    assert has_task_head(made, task)
    assert not has_task_head(made, tiny_task)
    turned = task.model_copy(update={"labels": ("good", "bad")})
    expected = model.classifier.weight[[1, 0, 2]]
    assert torch.equal(load_model(made, turned).classifier.weight, expected)
    number = task_of(kind="regression").model_copy(update={"long": "attention"})
    assert load_model(folder, number).config.num_labels == 2


CHOOSERS = {name: family.choice_head_is_sequence_head for name, family in FAMILIES.items()}


@pytest.mark.parametrize(("name", "alike"), CHOOSERS.items())
def test_multiple_choice_head_is_reused_where_it_is_a_sequence_head(name, alike, plain, tiny_model, batch):
    model = tiny_model(name, head="ForMultipleChoice")
    folder, task = plain(model), task_of(kind="multiple_choice")
    assert has_task_head(folder, task) is alike
    again = load_model(folder, task)
    assert again.config.num_labels == 1
    assert not has_task_head(folder, task_of(kind="regression"))
    if alike:
        again.train(False)
        with torch.no_grad():
            choices = {key: value[None] for key, value in batch(model).items()}
            torch.testing.assert_close(again(**batch(model)).logits[:, 0], model(**choices).logits[0])
        assert same_weights(load(folder), again)


def test_encoder_gets_a_new_head(plain, tiny_model, tiny_task):
    base = tiny_model("bert", head="Model")
    folder = plain(base)
    assert not has_task_head(folder, tiny_task)
    model = load_model(folder, tiny_task)
    assert same_weights(model.bert, base)
    assert model.config.problem_type == "single_label_classification"


def test_saved_head_is_used_without_a_task(plain, tiny_model):
    assert type(load(plain())).__name__ == "BertForSequenceClassification"
    assert type(load(plain(tiny_model("bert", head="Model")))).__name__ == "BertModel"


def test_half_precision_checkpoint_is_loaded_in_fp32(plain, tiny_model, tiny_task):
    assert load_model(plain(tiny_model("bert").half()), tiny_task).dtype == torch.float32


def test_loading_keeps_the_random_state_and_prints_nothing(plain, tiny_task, capfd):
    folder = plain()
    before = torch.get_rng_state()
    load_model(folder, task_of("x", "y"))
    assert torch.equal(torch.get_rng_state(), before)
    assert capfd.readouterr() == ("", "")


def test_missing_encoder_weights_are_refused(plain, tiny_task):
    folder = plain()
    tensors = load_file(folder / SAFE)
    del tensors["bert.encoder.layer.1.output.dense.weight"]
    save_file(tensors, folder / SAFE, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 weights of the encoder.*layer\.1\.output\.dense\.weight"):
        load_model(folder, tiny_task)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinite_weights_are_refused(value, plain, tiny_task):
    folder = plain()
    tensors = load_file(folder / SAFE)
    tensors["bert.encoder.layer.1.output.dense.weight"][0, 0] = value
    save_file(tensors, folder / SAFE, metadata={"format": "pt"})
    with pytest.raises(
        ModelError, match=r"weights that are NaN or infinite, in bert\.encoder\.layer\.1\.output\.dense\.weight"
    ):
        load_model(folder, tiny_task)


def test_weights_of_another_size_are_refused(plain, tiny_task):
    folder = plain()
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | {"intermediate_size": 96}))
    with pytest.raises(ModelError, match="another size"):
        load_model(folder, tiny_task)


def test_partly_missing_head_is_refused(plain, tiny_task):
    folder = plain()
    tensors = load_file(folder / SAFE)
    del tensors["classifier.bias"]
    save_file(tensors, folder / SAFE, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks weights of its head: classifier\.bias"):
        load_model(folder, tiny_task)


def test_pickle_is_read_as_tensors(plain, tiny_model, tiny_task):
    folder = plain()
    torch.save(load_file(folder / SAFE), folder / "pytorch_model.bin")
    (folder / SAFE).unlink()
    assert same_weights(load_model(folder, tiny_task), tiny_model("bert"))


class Evil:
    def __reduce__(self):
        return print, ("run",)


def test_pickle_with_more_than_tensors_is_refused(plain, tiny_task, capfd):
    folder = plain()
    (folder / SAFE).unlink()
    torch.save({"weight": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="contains more than plain tensors"):
        load_model(folder, tiny_task)
    assert "run" not in capfd.readouterr().out


def test_broken_folder_names_the_problem(plain, tiny_task, tmp_path):
    with pytest.raises(ModelError, match=r"has no config\.json"):
        load_model(tmp_path / "nothing", tiny_task)
    folder = plain()
    (folder / SAFE).write_bytes(b"not safetensors at all")
    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read"):
        load_model(folder, tiny_task)
    (folder / SAFE).unlink()
    with pytest.raises(ModelError, match=r"has no weights: expected model\.safetensors"):
        load_model(folder, tiny_task)
    (folder / CONFIG).write_text("{")
    with pytest.raises(ModelError, match=r"config\.json cannot be read"):
        load_model(folder, tiny_task)
    (folder / CONFIG).write_text('{"model_type": "gpt2"}')
    with pytest.raises(ModelError, match="'gpt2' is not supported"):
        load_model(folder, tiny_task)


def test_tokenizer_is_restored(plain, tmp_path):
    folder = plain()
    assert load_tokenizer(folder)("a good film")["input_ids"] == [2, 4, 11, 9, 3]
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ModelError, match="tokenizer"):
        load_tokenizer(folder)


def test_the_answer_of_a_mobilebert_is_the_same_alone_and_in_a_batch(plain, tiny_model, tiny_task):
    """Its last token is joined to what follows it, which in a batch is padding."""
    model = tiny_model("mobilebert")
    model.get_input_embeddings().weight.data[model.config.pad_token_id] = 3.0
    loaded = load_model(plain(model), tiny_task).eval()
    ids, mask = torch.tensor([[5, 6, 7, 8], [5, 6, 0, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    together = loaded(input_ids=ids, attention_mask=mask).logits[1]
    alone = loaded(input_ids=ids[1:, :2], attention_mask=mask[1:, :2]).logits[0]
    torch.testing.assert_close(together, alone)


def test_a_checkpoint_that_always_returns_its_states_is_loaded_without(plain, tiny_model, tiny_task):
    folder = plain(tiny_model("bert"))
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | {"output_hidden_states": True, "output_attentions": True}))
    ids = torch.tensor([[5, 6]])
    outputs = load_model(folder, tiny_task).eval()(input_ids=ids, attention_mask=torch.ones_like(ids))
    assert [*outputs] == ["logits"]


def test_saving_writes_no_pickle_and_no_paths(tiny_model, tiny_tokenizer, tiny_task, plain, tmp_path):
    model = load_model(plain(), tiny_task)
    folder = tmp_path / "out"
    written = save_model(model, tiny_tokenizer, folder, FolderInfo(step="finetune", made_by="tests", task=tiny_task))
    assert written == read_info(folder)
    assert {path.name for path in folder.iterdir()} >= {CONFIG, SAFE, "tokenizer.json", "compress.json"}
    texts = [path.read_text() for path in folder.glob("*.json")]
    assert not any(str(tmp_path) in text for text in texts)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("token_classification", r"compress\.json describes a token_classification model .* is a BertForSequenceCl"),
        ("similarity", "describes a similarity model"),
        ("unheard-of", r"compress\.json: no task kind is called 'unheard-of'"),
    ],
)
def test_compress_json_of_another_kind_of_model_is_refused(kind, message, tiny_model, tiny_folder):
    folder = tiny_folder(tiny_model("bert"))
    info = json.loads((folder / "compress.json").read_text())
    info["task"]["kind"] = kind
    (folder / "compress.json").write_text(json.dumps(info))
    with pytest.raises(ModelError, match=message):
        load(folder)


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
