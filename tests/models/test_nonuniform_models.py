import json
import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, pipeline

from compress.families import FAMILIES
from compress.model_folder.model_info import FolderInfo, read_info
from compress.models import load, save_model
from compress.models.encoder_parts import layer_shapes
from compress.models.heads import HEADS
from compress.models.nonuniform_models import match_config_to_weights
from compress.models.read_checkpoint import quiet

PRUNABLE = [name for name, family in FAMILIES.items() if family.prunable]
CLASSES = [head.suffix for head in HEADS.values()]


def loaded(auto, folder):
    with quiet():
        return auto.from_pretrained(folder).eval()


@pytest.mark.parametrize("head", CLASSES)
@pytest.mark.parametrize("name", PRUNABLE)
def test_every_family_and_head_comes_back_bit_for_bit(name, head, tiny_model, cut, tmp_path):
    model = match_config_to_weights(cut(tiny_model(name, head=head)))
    with quiet():
        model.save_pretrained(tmp_path)
    auto = next(entry.auto for entry in HEADS.values() if entry.suffix == head)
    again = loaded(auto, tmp_path)
    assert type(again) is type(model)
    assert layer_shapes(again) == [(3, 64), (4, 48)]
    ours, theirs = model.state_dict(), again.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("name", PRUNABLE)
def test_matching_the_config_changes_no_output(name, tiny_model, cut, batch):
    model = cut(tiny_model(name))
    model.train(False)
    with torch.no_grad():
        before = model(**batch(model)).logits
        made = match_config_to_weights(model)
        assert torch.equal(made(**batch(made)).logits, before)
    assert not made.training
    assert made.config.model_type == f"compress-{name}"
    assert made.config.id2label == model.config.id2label


def test_nonuniform_folder_works_in_a_pipeline(tiny_model, tiny_tokenizer, tiny_task, cut, tmp_path):
    model = cut(tiny_model("bert"))
    save_model(model, tiny_tokenizer, tmp_path, FolderInfo(step="prune", made_by="tests", task=tiny_task))
    with quiet():
        classify = pipeline("text-classification", model=str(tmp_path), tokenizer=str(tmp_path))
        result = classify("a good film")[0]
        pieces = tiny_tokenizer("a good film", return_tensors="pt")
    wanted = model(**pieces).logits.softmax(-1)[0]
    assert result["score"] == pytest.approx(wanted.max().item(), rel=1e-5)
    assert result["label"] == model.config.id2label[int(wanted.argmax())]


@pytest.mark.slow
def test_import_alone_registers_nonuniform_models(tiny_model, tiny_tokenizer, tiny_task, cut, tmp_path):
    save_model(cut(tiny_model("bert")), tiny_tokenizer, tmp_path, FolderInfo(step="prune", made_by="t", task=tiny_task))
    code = (
        "import sys, compress.models; from transformers import AutoModelForSequenceClassification as A;"
        "print(type(A.from_pretrained(sys.argv[1])).__name__)"
    )
    command = [sys.executable, "-c", code, tmp_path]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.strip() == "CompressBertForSequenceClassification", done.stderr


def test_compress_json_records_the_shape(tiny_model, tiny_tokenizer, tiny_task, cut, tmp_path):
    save_model(cut(tiny_model("bert")), tiny_tokenizer, tmp_path, FolderInfo(step="prune", made_by="t", task=tiny_task))
    info = read_info(tmp_path)
    assert (info.shape.heads, info.shape.ffn) == ((3, 4), (64, 48))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["layer_shapes"] == [{"heads": 3, "ffn": 64}, {"heads": 4, "ffn": 48}]
    assert config["head_size"] == 8
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors", ".md"}


def test_plain_model_stays_plain(tiny_model):
    model = tiny_model("bert")
    assert match_config_to_weights(model) is model
    assert match_config_to_weights(tiny_model("albert")).config.model_type == "albert"


def test_uniform_ffn_is_saved_as_plain_model(tiny_model, cut, tmp_path):
    model = cut(tiny_model("bert", num_hidden_layers=1, num_attention_heads=4))
    made = match_config_to_weights(model)  # three heads: uneven
    assert made.config.model_type == "compress-bert"
    model = tiny_model("bert", intermediate_size=96)
    model.config.intermediate_size = 64  # the weights have 96
    made = match_config_to_weights(model)
    assert made.config.model_type == "bert"
    assert made.config.intermediate_size == 96


def test_nonuniform_model_can_be_cut_again(tiny_model, cut):
    once = match_config_to_weights(cut(tiny_model("bert")))
    assert match_config_to_weights(once) is once
    again = match_config_to_weights(cut(once))
    assert layer_shapes(again) == [(3, 64), (4, 48)]


def test_config_without_layer_shapes_is_refused(tiny_model, cut):
    config = match_config_to_weights(cut(tiny_model("bert"))).config
    config.layer_shapes = config.layer_shapes[:1]
    with pytest.raises(ValueError, match="zip"):
        AutoModelForSequenceClassification.from_config(config)


def test_base_model_of_nonuniform_folder_loads(tiny_model, tiny_tokenizer, tiny_task, cut, tmp_path):
    model = cut(tiny_model("bert"))
    save_model(model, tiny_tokenizer, tmp_path, FolderInfo(step="prune", made_by="t", task=tiny_task))
    base = loaded(AutoModel, tmp_path)
    assert type(base).__name__ == "CompressBertModel"
    assert load(tmp_path).training is False
