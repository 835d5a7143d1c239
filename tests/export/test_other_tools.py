"""Exports describe themselves as the family's plain models, so that other tools read them."""

import json

import pytest

from compress.export.other_tools import OWN_KEYS, copy_companions, plain_config
from compress.families import FAMILIES
from compress.model_folder.model_info import read_info
from compress.model_shapes import shape_of_folder
from compress.models.heads import HEADS
from compress.models.load_save import load
from compress.models.nonuniform_models import FIELDS, NONUNIFORM_CONFIGS, PLAIN_CONFIGS, with_head_pooling
from compress.prune.surgery import remove_units
from compress.runtime.text_model import TextModel
from tests.variant_builder import build


@pytest.mark.parametrize("head", list(HEADS.values()), ids=list(HEADS))
@pytest.mark.parametrize("family", FAMILIES)
def test_every_class_of_ours_becomes_the_plain_one(family, head):
    encoder = HEADS["encoder"].model_class(PLAIN_CONFIGS[family]).__name__
    expected = encoder if head.name == "sentence-embedding" else head.model_class(PLAIN_CONFIGS[family]).__name__
    for configs in (PLAIN_CONFIGS, NONUNIFORM_CONFIGS):
        config = configs[family](architectures=[head.model_class(configs[family]).__name__])
        plain = plain_config(config.to_dict())
        assert (plain["model_type"], plain["architectures"]) == (family, [expected])
        for_servers = {"architectures", "hidden_size", "num_hidden_layers"}
        assert plain.keys() <= PLAIN_CONFIGS[family]().to_dict().keys() | for_servers


def test_our_keys_are_known():
    assert set(FIELDS) < set(OWN_KEYS)


@pytest.mark.parametrize(
    ("model_type", "before", "after"),
    [
        ("bert", "BertForMaskedLM", "BertModel"),
        ("bert", "BertForMultipleChoice", "BertForSequenceClassification"),
        ("roberta", "RobertaForMultipleChoice", "RobertaModel"),
        ("xlm-roberta", "XLMRobertaForTokenClassification", "XLMRobertaForTokenClassification"),
    ],
)
def test_a_class_names_what_the_graph_computes(model_type, before, after):
    assert plain_config({"model_type": model_type, "architectures": [before]})["architectures"] == [after]


def test_files_that_are_plain_already_stay_as_they_are(tmp_path):
    source, work = tmp_path / "source", tmp_path / "work"
    source.mkdir()
    work.mkdir()
    text = '{"architectures": ["BertModel"],   "model_type": "bert"}'
    (source / "config.json").write_text(text)
    copy_companions(source, work, None)
    assert [path.name for path in work.iterdir()] == ["config.json"]
    assert (work / "config.json").read_text() == text


@pytest.fixture(scope="module")
def pooled_and_pruned(tiny_folder, tiny_model):
    """The folder of a pruned BERT whose classifier reads the mean of all tokens."""
    plain = tiny_model("bert")
    config = with_head_pooling(plain.config, "mean")
    pooled = HEADS["sequence-classification"].model_class(type(config))(config).eval()
    return tiny_folder(remove_units(pooled, [[0, 2], [1]], [list(range(48)), list(range(16, 32))]))


@pytest.mark.slow
def test_an_export_of_a_model_of_ours_is_described_plainly(pooled_and_pruned, tmp_path):
    folders = {"onnx-fp32": pooled_and_pruned, "onnx-int8": tmp_path / "onnx-fp32"}
    shape, class_name = read_info(pooled_and_pruned).shape, "BertForSequenceClassification"
    assert load(pooled_and_pruned).config.model_type == "compress-bert"
    for variant, source in folders.items():
        work = tmp_path / variant
        work.mkdir()
        build(variant, source, work)
        config = json.loads((work / "config.json").read_bytes())
        assert (config["model_type"], config["architectures"]) == ("bert", [class_name])
        assert config["id2label"] == {"0": "bad", "1": "good"}
        assert not set(config) & set(OWN_KEYS)
        assert json.loads((work / "tokenizer_config.json").read_bytes())["tokenizer_class"] == "PreTrainedTokenizerFast"
        assert read_info(work).shape == shape_of_folder(work) == shape
        assert len(TextModel.open(work).predict(["a good film"])) == 1
