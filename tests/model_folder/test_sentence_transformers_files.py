"""Files of sentence-transformers, read and written without torch."""

import json

import pytest

from compress.errors import ModelError
from compress.model_folder.model_info import TaskInfo
from compress.model_folder.sentence_transformers_files import (
    copy_modules,
    default_prompt,
    pooling_settings,
    read_settings,
    task_of_folder,
    write_settings,
)

TASK = TaskInfo(name="t", kind="ranking", text=("q", "c"), metric="map", max_length=48)
ENCODER = {"model_type": "bert", "architectures": ["BertModel"], "max_position_embeddings": 512, "pad_token_id": 0}
CLASSIFIER = ENCODER | {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
NLI = CLASSIFIER | {"id2label": {"1": "neutral", "0": "entailment", "10": "other", "2": "contradiction"}}


def write(folder, **files):
    """Write JSON files by their names without the ending; a double underscore is a folder's end."""
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))


def modules(*kinds):
    return [{"path": f"{index}_{kind}" if index else "", "type": f"a.{kind}"} for index, kind in enumerate(kinds)]


def embedder(folder, *more, include_prompt=True, **files):
    pooling = {"pooling_mode": "max", "embedding_dimension": 32, "include_prompt": include_prompt}
    write(folder, config=ENCODER, modules=modules("Transformer", "Pooling", *more), **{"1_Pooling__config": pooling})
    write(folder, **files)


def test_embedding_folder_compares_texts(tmp_path):
    embedder(tmp_path, "Dropout", "Normalize", sentence_bert_config={"max_seq_length": 100})
    task = task_of_folder(tmp_path)
    assert (task.kind, task.max_length) == ("similarity", 100)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 512),
        ({"tokenizer_config": {"model_max_length": 64}}, 64),
        ({"tokenizer_config": {"model_max_length": 10**30}}, 512),
        ({"sentence_bert_config": {"max_seq_length": None}, "tokenizer_config": {"model_max_length": 99}}, 99),
        ({"sentence_bert_config": {"max_seq_length": 1024}}, 512),
    ],
)
def test_length_is_where_sentence_transformers_cuts(tmp_path, files, expected):
    embedder(tmp_path, **files)
    assert task_of_folder(tmp_path).max_length == expected


@pytest.mark.parametrize(
    "files",
    [
        {"config_sentence_transformers": {"model_type": "CrossEncoder"}},
        {"modules": modules("Transformer")},
        {"config": CLASSIFIER | {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}},
        {"config": CLASSIFIER | {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}},
    ],
)
def test_cross_encoder_ranks(tmp_path, files):
    write(tmp_path, **({"config": CLASSIFIER} | files))
    task = task_of_folder(tmp_path)
    assert (task.kind, task.labels) == ("ranking", ())


def test_cross_encoder_of_several_labels_classifies_pairs(tmp_path):
    write(tmp_path, config=NLI, modules=modules("Transformer"))
    task = task_of_folder(tmp_path)
    assert (task.kind, len(task.text)) == ("classification", 2)
    assert task.labels == ("entailment", "neutral", "contradiction", "other")


@pytest.mark.parametrize("config", [ENCODER, CLASSIFIER])
def test_folder_of_plain_transformers_has_no_task(tmp_path, config):
    write(tmp_path, config=config)
    assert task_of_folder(tmp_path) is None


@pytest.mark.parametrize("kinds", [("Transformer", "SpladePooling"), ("Transformer", "Pooling", "LSTM"), ("Router",)])
def test_other_modules_are_refused(tmp_path, kinds):
    write(tmp_path, config=ENCODER, modules=modules(*kinds))
    with pytest.raises(ModelError, match=f"lists the modules {', '.join(kinds)}; supported are Transformer, Pooling"):
        task_of_folder(tmp_path)


PROMPT = {"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": "query"}


def test_default_prompt(tmp_path):
    embedder(tmp_path, config_sentence_transformers=PROMPT)
    assert default_prompt(tmp_path) == "query: "
    assert task_of_folder(tmp_path).kind == "similarity"
    write(tmp_path, config_sentence_transformers=PROMPT | {"default_prompt_name": None})
    assert default_prompt(tmp_path) == ""


def test_default_prompt_that_is_not_computed_is_refused(tmp_path):
    embedder(tmp_path, include_prompt=False, config_sentence_transformers=PROMPT)
    with pytest.raises(ModelError, match="'query: ', whose tokens are left out of the pooling"):
        task_of_folder(tmp_path)
    write(tmp_path, config=CLASSIFIER, modules=modules("Transformer"))
    with pytest.raises(ModelError, match="whose tokens go before each pair"):
        task_of_folder(tmp_path)


LOWERCASE = {"type": "Lowercase"}


@pytest.mark.parametrize(
    ("normalizer", "is_read"),
    [
        (None, False),
        ({"type": "BertNormalizer", "lowercase": False}, False),
        ({"type": "BertNormalizer", "lowercase": True}, True),
        ({"type": "Sequence", "normalizers": [{"type": "NFC"}, LOWERCASE]}, True),
    ],
)
def test_lower_case_that_the_tokenizer_does_not_make_is_refused(tmp_path, normalizer, is_read):
    embedder(tmp_path, tokenizer={"normalizer": normalizer})
    assert task_of_folder(tmp_path).kind == "similarity"
    write(tmp_path, sentence_bert_config={"do_lower_case": True})
    if is_read:
        assert task_of_folder(tmp_path).kind == "similarity"
    else:
        with pytest.raises(ModelError, match="lower case before the tokenizer"):
            task_of_folder(tmp_path)


def test_ranking_model_is_a_cross_encoder_whose_scores_are_its_outputs(tmp_path):
    write(tmp_path, config=CLASSIFIER)
    write_settings(tmp_path, TASK)
    about = read_settings(tmp_path / "config_sentence_transformers.json")
    assert (about["model_type"], about["activation_fn"]) == ("CrossEncoder", "torch.nn.modules.linear.Identity")
    settings = read_settings(tmp_path / "sentence_bert_config.json")
    assert settings["max_seq_length"] == 48
    assert settings["transformer_task"] == "sequence-classification"
    assert task_of_folder(tmp_path).kind == "ranking"


def test_other_models_get_their_length_alone(tmp_path):
    write(tmp_path, config=CLASSIFIER | {"max_position_embeddings": 40})
    write_settings(tmp_path, TASK.model_copy(update={"kind": "classification"}))
    assert not (tmp_path / "modules.json").exists()
    assert read_settings(tmp_path / "sentence_bert_config.json")["max_seq_length"] == 40
    write_settings(tmp_path / "none", None)
    assert not (tmp_path / "none").exists()


def test_settings_of_others_are_kept(tmp_path):
    about = {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.activation.Sigmoid"}
    settings = {"do_lower_case": True, "modality_config": {"text": {}}}
    write(tmp_path, config=CLASSIFIER, modules=modules("Transformer"), config_sentence_transformers=about)
    write(tmp_path, sentence_bert_config=settings)
    write_settings(tmp_path, TASK)
    assert read_settings(tmp_path / "config_sentence_transformers.json") == about
    assert read_settings(tmp_path / "sentence_bert_config.json") == settings | {"max_seq_length": 48}


def test_pooling_is_copied_as_every_tool_reads_it(tmp_path):
    source, work = tmp_path / "source", tmp_path / "work"
    source.mkdir()
    work.mkdir()
    embedder(source, "Normalize", include_prompt=False)
    copy_modules(source, work)
    written = read_settings(work / "1_Pooling" / "config.json")
    assert written == pooling_settings("max", 32, include_prompt=False)
    # Keys that text-embeddings-inference requires, all of them.
    for name in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens"):
        assert written[f"pooling_mode_{name}"] is (name == "max_tokens")
    assert read_settings(work / "modules.json") == read_settings(source / "modules.json")


def test_pickled_dense_layer_is_copied_as_safetensors(tmp_path):
    torch = pytest.importorskip("torch")
    load_file = pytest.importorskip("safetensors.torch").load_file
    source, work = tmp_path / "source", tmp_path / "work"
    source.mkdir()
    work.mkdir()
    embedder(source, "Dense", **{"2_Dense__config": {}})
    torch.save({"linear.weight": torch.ones(3, 2)}, source / "2_Dense" / "pytorch_model.bin")
    copy_modules(source, work)
    assert sorted(path.name for path in (work / "2_Dense").iterdir()) == ["config.json", "model.safetensors"]
    assert torch.equal(load_file(work / "2_Dense" / "model.safetensors")["linear.weight"], torch.ones(3, 2))
