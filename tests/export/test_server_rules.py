"""Exports have what text-embeddings-inference and encoderfile read, by the rules of their sources and documentation.

Neither runs here: both are programs in Rust that are not in a package registry. Their rules are in docs/servers.md.
"""

import json

import pytest

from compress.export.other_tools import copy_companions
from compress.families import FAMILIES
from compress.model_folder.model_info import TaskInfo
from compress.model_folder.sentence_transformers_files import copy_modules, write_settings

ALIKE = TaskInfo(name="alike", kind="similarity", text=("one", "other"), metric="spearman", max_length=24)
RANK = TaskInfo(name="rank", kind="ranking", text=("q", "c"), metric="map", max_length=32)

INTEGERS = ("max_position_embeddings", "hidden_size", "num_hidden_layers", "pad_token_id")
FLAGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")


def read(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


@pytest.fixture
def exported(tmp_path, tiny_folder):
    """Makes the files beside the graph of a model's export."""

    def make(model, task):
        source = tiny_folder(model, task)
        copy_companions(source, tmp_path, task)
        copy_modules(source, tmp_path)
        write_settings(tmp_path, task)
        return tmp_path

    return make


@pytest.mark.parametrize("name", FAMILIES)
def test_text_embeddings_inference_reads_embedding_models(name, tiny_model, exported):
    folder = exported(tiny_model(name, head="ForSentenceEmbedding"), ALIKE)
    config = read(folder, "config.json")
    assert [key for key in INTEGERS if not isinstance(config.get(key), int)] == []
    assert not config["architectures"][0].endswith("Classification")
    assert read(folder, "sentence_bert_config.json")["max_seq_length"] == 24
    pooling = read(folder, "1_Pooling/config.json")
    assert {flag: pooling[f"pooling_mode_{flag}"] for flag in FLAGS} == {flag: flag == "mean_tokens" for flag in FLAGS}


@pytest.mark.parametrize(("labels", "task"), [(("score",), RANK), (("bad", "good"), None)])
def test_text_embeddings_inference_reads_classifiers(labels, task, tiny_model, tiny_task, exported):
    task = task or tiny_task
    config = read(folder := exported(tiny_model("bert", labels=labels), task), "config.json")
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert len(config["id2label"]) == len(config["label2id"]) == len(labels)  # one label: a reranker
    assert read(folder, "sentence_bert_config.json")["max_seq_length"] == task.max_length


def test_encoderfile_reads_the_tokenizer(tiny_model, exported):
    settings = read(exported(tiny_model("bert", head="ForSentenceEmbedding"), ALIKE), "tokenizer_config.json")
    assert isinstance(settings["pad_token"], str)
    assert isinstance(settings["model_max_length"], int) or isinstance(settings["max_length"], int)
