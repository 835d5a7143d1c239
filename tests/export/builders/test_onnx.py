"""Real exports of tiny models of every family."""

import json

import numpy as np
import onnx
import pytest
import torch

import compress.export.builders.onnx as export
from compress.errors import ModelError, UsageError
from compress.export.builders.onnx import OPSET, export_onnx_from_model
from compress.export.comparison.parity import Parity
from compress.make_variant import export_from_model
from compress.model_folder.model_info import read_info
from compress.models.encoder_parts import family_of
from compress.prune.surgery import remove_units
from compress.runtime import open_predictor
from compress.runtime.text_model import TextModel
from compress.storage.file_digests import digests
from tests.variant_builder import add_to_logits, build

pytestmark = pytest.mark.filterwarnings("error")
PRUNABLE = ["bert", "roberta", "xlm-roberta", "electra", "distilbert"]


@pytest.fixture(scope="module")
def exported(tiny_folder, tmp_path_factory):
    """A BERT folder and its export."""
    source, work = tiny_folder("bert"), tmp_path_factory.mktemp("exported")
    build("onnx-fp32", source, work)
    return source, work


def test_the_folder_describes_itself_and_predicts_by_itself(exported):
    source, work = exported
    info, before = read_info(work), read_info(source)
    assert (info.task, info.shape) == (before.task, before.shape)
    assert info.inputs == ("input_ids", "attention_mask", "token_type_ids")
    assert info.variant.name == "onnx-fp32"
    assert info.variant.parity["max_abs_difference"] < 1e-4
    assert info.variant.parity["agreement"] == 1
    assert set(info.variant.session) <= {"disabled_optimizers"}
    assert {"model.onnx", "config.json", "tokenizer.json", "compress.json"} <= set(digests(work))
    assert "model.safetensors" not in digests(work)
    texts = ["a good film", "bad plot"]
    ours, theirs = TextModel.open(work).predict(texts), TextModel.open(source).predict(texts)
    assert [answer["label"] for answer in ours] == [answer["label"] for answer in theirs]


def test_the_graph_is_dynamic_valid_and_has_no_paths_of_this_machine(exported):
    _, work = exported
    path = work / "model.onnx"
    proto = onnx.load(path)
    onnx.checker.check_model(proto)
    assert proto.opset_import[0].version == OPSET
    for given in proto.graph.input:
        assert [axis.dim_param for axis in given.type.tensor_type.shape.dim] == ["batch", "length"]
    assert [given.name for given in proto.graph.output] == ["logits"]
    assert b"site-packages" not in path.read_bytes()
    assert b".py" not in path.read_bytes()


@pytest.mark.slow
def test_the_model_is_left_as_it_was(tiny_model):
    model = tiny_model("bert").train()
    attention, before = model.config._attn_implementation, {k: v.clone() for k, v in model.state_dict().items()}
    export_onnx_from_model(model)
    assert model.training
    assert model.config._attn_implementation == attention
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.slow
@pytest.mark.parametrize("family", [*PRUNABLE, "albert", "mobilebert", "modernbert"])
def test_every_family_exports(family, tiny_folder, tmp_path):
    source = tiny_folder(family)
    info = build("onnx-fp32", source, tmp_path)
    assert info.inputs == read_info(source).inputs
    assert info.variant.parity["max_abs_difference"] < 1e-4
    ids = np.array([[2, 5, 3]])
    arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    ours, theirs = open_predictor(tmp_path).predict(arrays), open_predictor(source).predict(arrays)
    np.testing.assert_allclose(ours["logits"], theirs["logits"], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", PRUNABLE)
def test_uneven_models_export(family, tiny_model, tiny_folder, tmp_path):
    pruned = remove_units(tiny_model(family), [[0, 2], [1]], [list(range(48)), list(range(16, 32))])
    info = build("onnx-fp32", tiny_folder(pruned), tmp_path)
    assert info.shape.heads == (2, 1)
    assert info.shape.ffn == (48, 16)
    assert info.variant.parity["max_abs_difference"] < 1e-4


@pytest.mark.slow
def test_other_heads_export_too(tiny_model):
    outputs = {
        "ForTokenClassification": ["logits"],
        "ForQuestionAnswering": ["start_logits", "end_logits"],
        "Model": ["last_hidden_state", "pooler_output"],
    }
    for head, names in outputs.items():
        proto = export_onnx_from_model(tiny_model("bert", head=head))
        assert [given.name for given in proto.graph.output] == names


EMBEDDINGS = {"kind": "similarity", "text": ("one", "other"), "labels": (), "metric": "spearman"}


@pytest.mark.parametrize(
    "family",
    [
        "bert",
        *(
            pytest.param(family, marks=pytest.mark.slow)
            for family in [*PRUNABLE[1:], "albert", "mobilebert", "modernbert"]
        ),
    ],
)
def test_embedding_models_export_and_are_quantized(family, tiny_model, tiny_folder, tiny_task, tmp_path):
    pytest.importorskip("openvino", reason="openvino is not installed")
    task = tiny_task.model_copy(update=EMBEDDINGS)
    model = tiny_model(family, head="ForSentenceEmbedding", sentence_size=8, pooling="mean")
    if family in PRUNABLE:
        model = remove_units(model, [[0, 2], [1]], [list(range(48)), list(range(16, 32))])
    source, graph = tiny_folder(model, task), tmp_path / "onnx"
    arrays = {name: np.array([[2, 5, 9, 3], [2, 7, 3, 0]]) for name in ("input_ids", "attention_mask")}
    arrays["attention_mask"] = (arrays["input_ids"] > 0).astype(np.int64)
    arrays["token_type_ids"] = np.zeros_like(arrays["input_ids"])
    expected = open_predictor(source).predict(arrays)
    for name, variant, origin, most in (
        ("onnx", "onnx-fp32", source, 1e-5),
        ("int8", "onnx-int8", graph, 0.2),
        ("openvino", "openvino-fp32", graph, 1e-5),
    ):
        work = tmp_path / name
        work.mkdir()
        info = build(variant, origin, work)
        assert "agreement" not in info.variant.parity
        got = open_predictor(work).predict(arrays)
        assert list(expected) == ["sentence_embedding"]
        np.testing.assert_allclose(got["sentence_embedding"], expected["sentence_embedding"], atol=most)


@pytest.mark.slow
def test_a_model_in_memory(tiny_model, tiny_tokenizer, tiny_task, tmp_path):
    folder = export_from_model(tiny_model("distilbert"), tiny_tokenizer, tmp_path / "out", task=tiny_task)
    assert len(TextModel.open(folder).predict(["a film"])) == 1
    with pytest.raises(UsageError, match="did you mean onnx"):
        export_from_model(tiny_model("distilbert"), tiny_tokenizer, tmp_path / "out", form="onx")


@pytest.mark.parametrize(
    ("difference", "message"), [(1.0, "differ from those of its source"), (float("nan"), "are not numbers")]
)
def test_a_graph_with_other_outputs_is_refused(exported, tmp_path, monkeypatch, difference, message):
    source, work = exported
    proto = onnx.load(work / "model.onnx")
    monkeypatch.setattr(export, "export_onnx_from_model", lambda model: add_to_logits(proto, difference))
    with pytest.raises(ModelError, match=message):
        build("onnx-fp32", source, tmp_path)


def test_too_large_a_model_is_refused_before_the_work(tiny_model, monkeypatch):
    monkeypatch.setattr(export, "LARGEST", 1000)
    with pytest.raises(ModelError, match="at most 2 GB"):
        export_onnx_from_model(tiny_model("bert"))


def test_what_the_exporter_cannot_do_is_reported_in_a_line(tiny_model, monkeypatch):
    model = tiny_model("bert")

    def forward(input_ids, **others):
        if input_ids.sum() > 0:  # a branch on data
            raise ValueError("unreachable")

    real = model.forward
    calls = []

    def once(**inputs):
        calls.append(inputs)
        return real(**inputs) if len(calls) == 1 else forward(**inputs)

    monkeypatch.setattr(model, "forward", once)
    with pytest.raises(ModelError, match="a bert model like this cannot be exported") as caught:
        export_onnx_from_model(model)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_checkpoint_without_tokenizer_json_gets_one(tiny_model, tmp_path):
    source, work = tmp_path / "source", tmp_path / "work"
    work.mkdir()
    tiny_model("bert").save_pretrained(source)
    (source / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film"]))
    info = build("onnx-fp32", source, work)
    assert (work / "tokenizer.json").is_file()
    assert info.task is None
    assert info.shape.family == family_of(tiny_model("bert")).name
    assert json.loads((work / "config.json").read_text())["model_type"] == "bert"


@pytest.mark.parametrize(
    ("difference", "largest", "within"),
    [(5e-5, 0.3, True), (5e-4, 0.3, False), (5e-4, 9.0, True), (5e-3, 9.0, False), (float("nan"), 9.0, False)],
)
def test_the_tolerance_is_relative_for_outputs_above_one(difference, largest, within):
    assert Parity(difference, None, 0.0, 1, largest).is_within(1e-4) is within


def test_parity_reads_well():
    assert str(Parity(2.14e-7, 1.0, 0.0, 19)) == "outputs within 2.1e-07, 100% same decisions on 19 rows"
    assert str(Parity(0.1, None, 0.0, 3)) == "outputs within 0.1 on 3 rows"
