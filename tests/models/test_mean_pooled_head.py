"""Classifiers on the mean of all tokens: loading, saving, students, pruning and exports of every family."""

import json
import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, pipeline

from compress.families import FAMILIES
from compress.model_folder.model_info import FolderInfo, TaskInfo
from compress.models import load, load_model, save_model
from compress.models.embedding_model import mean_pool
from compress.models.encoder_parts import base_of, layers_of
from compress.models.nonuniform_models import match_config_to_weights
from compress.models.read_checkpoint import quiet
from compress.models.student.build_student import build_student
from compress.prune.surgery import remove_units
from compress.recipe.student_schema import Student
from compress.runtime import open_predictor
from tests.variant_builder import build

POOLED = [name for name, family in FAMILIES.items() if not family.native_head_pooling]
PRUNABLE = [name for name, family in FAMILIES.items() if family.prunable]
SLICEABLE = [name for name, family in FAMILIES.items() if family.resizable]


@pytest.fixture
def pooled(tiny_model, tiny_folder, tiny_task):
    """A tiny encoder of a family with a new mean-pooled head, large enough that decisions differ."""

    def make(family, **changes):
        folder = tiny_folder(tiny_model(family, head="Model", **changes), task=None)
        model = load_model(folder, tiny_task, pooling="mean").eval()
        with torch.no_grad():
            model.classifier.weight.mul_(10)
        return model

    return make


def logits(model, arrays):
    model.train(False)
    with torch.no_grad():
        return model(**arrays).logits


@pytest.mark.parametrize("name", POOLED)
def test_the_head_reads_the_mean_of_all_tokens(name, pooled, batch):
    model = pooled(name)
    arrays = batch(model)
    assert model.config.model_type == f"compress-{name}"
    with torch.no_grad():
        states = base_of(model)(**arrays).last_hidden_state
        expected = model.classifier(mean_pool(states, arrays["attention_mask"]))
    torch.testing.assert_close(logits(model, arrays), expected)
    short = {key: array[1:, :4] for key, array in arrays.items()}
    torch.testing.assert_close(logits(model, arrays)[1:], logits(model, short), atol=1e-5, rtol=1e-5)
    head = [key for key in model.state_dict() if not key.startswith(f"{model.base_model_prefix}.")]
    assert sorted(head) == ["classifier.bias", "classifier.weight"]
    assert not [key for key in model.state_dict() if "pooler" in key]


@pytest.mark.parametrize("name", POOLED)
def test_a_folder_comes_back_bit_for_bit(name, pooled, batch, tiny_tokenizer, tiny_task, tmp_path):
    model = pooled(name)
    arrays = batch(model)
    before = logits(model, arrays)
    save_model(model, tiny_tokenizer, tmp_path, FolderInfo(step="finetune", made_by="t", task=tiny_task))
    assert json.loads((tmp_path / "config.json").read_text())["head_pooling"] == "mean"
    assert torch.equal(logits(load(tmp_path), arrays), before)
    with quiet():
        assert torch.equal(logits(AutoModelForSequenceClassification.from_pretrained(tmp_path), arrays), before)
        encoder = AutoModel.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        own = base_of(model)(**arrays).last_hidden_state
        assert torch.equal(encoder(**arrays).last_hidden_state, own)


@pytest.mark.slow
def test_plain_transformers_refuses_the_folder(pooled, tiny_tokenizer, tiny_task, tmp_path):
    save_model(pooled("bert"), tiny_tokenizer, tmp_path, FolderInfo(step="finetune", made_by="t", task=tiny_task))
    code = (
        "import sys; from transformers import AutoModelForSequenceClassification as A; A.from_pretrained(sys.argv[1])"
    )
    command = [sys.executable, "-c", code, tmp_path]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode != 0
    assert "compress-bert" in done.stderr
    with quiet():
        result = pipeline("text-classification", model=str(tmp_path), tokenizer=str(tmp_path))("a good film")[0]
    assert result["label"] in tiny_task.labels


def test_modernbert_has_a_mean_pooled_head_of_its_own(tiny_model, tiny_folder, tiny_task):
    folder = tiny_folder(tiny_model("modernbert", head="Model"), task=None)
    for pooling, expected in (("mean", "mean"), ("cls", "cls"), (None, "cls")):
        config = load_model(folder, tiny_task, pooling=pooling).config
        assert (config.model_type, config.classifier_pooling) == ("modernbert", expected)


def test_other_heads_and_trained_ones_ignore_the_pooling(pooled, tiny_model, tiny_folder, tiny_task):
    reused = load_model(tiny_folder("bert"), tiny_task, pooling="mean")
    assert reused.config.model_type == "bert"
    folder = tiny_folder(pooled("bert"))
    assert load_model(folder, tiny_task, pooling="cls").config.head_pooling == "mean"
    other = tiny_task.model_copy(update={"labels": ("no", "yes")})
    again = load_model(folder, other)
    assert again.config.head_pooling == "mean"
    assert not torch.equal(again.classifier.weight, load(folder).classifier.weight)
    back = load_model(folder, other, pooling="cls")
    assert (back.config.model_type, type(back).__name__) == ("bert", "BertForSequenceClassification")
    tags = TaskInfo(
        name="tags", kind="token_classification", text=("words",), labels=("O", "X"), metric="f1", max_length=32
    )
    assert load_model(folder, tags, pooling="mean").config.model_type == "bert"


def test_labels_give_a_loss(pooled, batch):
    model = pooled("bert")
    wanted = torch.tensor([1, 0])
    given = model(**batch(model), labels=wanted)
    torch.testing.assert_close(given.loss, torch.nn.functional.cross_entropy(given.logits, wanted))


def test_the_dropout_is_the_familys(tiny_model, tiny_folder, tiny_task):
    for family, key in (("bert", "classifier_dropout"), ("distilbert", "seq_classif_dropout")):
        folder = tiny_folder(tiny_model(family, head="Model", **{key: 0.37}), task=None)
        assert load_model(folder, tiny_task, pooling="mean").dropout.p == 0.37


@pytest.mark.parametrize("name", POOLED)
def test_students_have_the_teachers_head(name, pooled, batch):
    teacher = pooled(name)
    student = build_student(teacher, Student(layers=1))
    assert (student.config.model_type, student.config.head_pooling) == (f"compress-{name}", "mean")
    assert torch.equal(student.classifier.weight, teacher.classifier.weight)
    assert len(layers_of(student)) == 1
    logits(student, batch(student))


@pytest.mark.parametrize("start", ["slice", "svd", "random"])
@pytest.mark.parametrize("name", [name for name in POOLED if name in SLICEABLE])
def test_narrower_students_too(name, start, pooled, batch):
    teacher = pooled(name)
    narrow = build_student(teacher, Student(layers=1, hidden=24, heads=3, start=start))
    assert narrow.config.head_pooling == "mean"
    assert narrow.classifier.weight.shape == (2, 24)
    assert match_config_to_weights(narrow) is narrow
    logits(narrow, batch(narrow))


def test_a_student_of_its_own_checkpoint_has_its_own_pooling(pooled, tiny_model, tiny_folder, tiny_task):
    folder = tiny_folder(tiny_model("bert", head="Model"), task=None)
    for pooling, expected in (("mean", "compress-bert"), (None, "bert")):
        student = build_student(pooled("bert"), Student(source=str(folder), pooling=pooling), tiny_task)
        assert student.config.model_type == expected


@pytest.mark.parametrize("name", PRUNABLE)
def test_a_pruned_model_keeps_the_head(name, pooled, batch, tiny_folder):
    model = remove_units(pooled(name), [[0, 2], [1]], [list(range(48)), list(range(16, 32))])
    before = logits(model, batch(model))
    again = load(tiny_folder(model))
    assert again.config.head_pooling == "mean"
    assert torch.equal(logits(again, batch(again)), before)


@pytest.mark.parametrize(
    "name", ["bert", *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES if name != "bert")]
)
def test_exports_agree_padded_and_unpadded(name, pooled, batch, tiny_folder, tmp_path):
    pytest.importorskip("openvino", reason="openvino is not installed")
    source = tiny_folder(pooled(name, initializer_range=0.1))
    predictor = open_predictor(source)
    arrays = {key: array.numpy() for key, array in batch(load(source)).items()}
    alone = {key: array[1:, :4] for key, array in arrays.items()}
    graph = tmp_path / "onnx"
    for folder, variant, origin, most in (
        ("onnx", "onnx-fp32", source, 1e-5),
        ("int8", "onnx-int8", graph, 0.5),
        ("openvino", "openvino-fp32", graph, 1e-5),
    ):
        (tmp_path / folder).mkdir()
        build(variant, origin, tmp_path / folder)
        exported = open_predictor(tmp_path / folder)
        for given in (arrays, alone):
            result, expected = exported.predict(given)["logits"], predictor.predict(given)["logits"]
            assert abs(result - expected).max() < most * max(1.0, abs(expected).max())
