"""INT8 of real exports of tiny models."""

import io
import re

import numpy as np
import onnx
import pytest

import compress.quantize.dynamic as dynamic
import compress.quantize.quantize_export as quantize_export
from compress.console import Console
from compress.errors import ModelError, UsageError
from compress.export.comparison.parity_check import LIMITS, ParityLimit, check_golden
from compress.model_folder.model_info import read_info
from compress.quantize import quantize_folder
from compress.quantize.dynamic import quantize_int8_dynamic_model
from compress.quantize.integer_products import can_any_saturate, integer_products, product_names
from compress.runtime import onnx_runtime
from compress.runtime.text_model import TextModel
from compress.storage.file_digests import digests
from tests.variant_builder import add_to_logits, build


@pytest.fixture(scope="module")
def quantized(exported, tmp_path_factory):
    work = tmp_path_factory.mktemp("quantized")
    build("onnx-int8", exported, work)
    return work


def test_the_folder_describes_itself_and_predicts_by_itself(exported, quantized):
    info = read_info(quantized)
    assert (info.task, info.shape, info.inputs) == tuple(
        getattr(read_info(exported), k) for k in ("task", "shape", "inputs")
    )
    assert (info.variant.name, info.variant.precision, info.variant.method) == ("onnx-int8", "int8", "dynamic")
    assert {"opset 20", "MatMulInteger", "Gather"} < set(info.variant.operators)
    assert 0 < info.variant.parity["max_abs_difference"] < 1
    assert info.variant.parity["alone_or_in_batch"] > 0
    assert set(digests(quantized)) == set(digests(exported))
    assert len(TextModel.open(quantized).predict(["a good film", "bad"])) == 2


def test_products_and_embeddings_are_integers(quantized):
    graph = onnx.load(quantized / "model.onnx").graph
    tables = {table.name: table for table in graph.initializer}
    floats = [
        name for name, table in tables.items() if len(table.dims) == 2 and table.data_type == onnx.TensorProto.FLOAT
    ]
    assert floats == []
    kinds = [node.op_type for node in graph.node]
    # Four products a layer, the pooler and the head; what multiplies activations with each other stays as it is.
    assert kinds.count("MatMulInteger") == 2 * 4 + 2
    assert kinds.count("MatMul") == 2 * 2


def test_every_column_has_its_scale(quantized):
    graph = onnx.load(quantized / "model.onnx").graph
    tables = {table.name: table for table in graph.initializer}
    weights = [node.input[1] for node in graph.node if node.op_type == "MatMulInteger"]
    for name in weights:
        assert tables[name.replace("_quantized", "_scale")].dims[0] == tables[name].dims[1]


def test_the_graph_given_is_left_as_it_was(exported):
    proto = onnx.load(exported / "model.onnx")
    before = proto.SerializeToString()
    quantize_int8_dynamic_model(proto)
    assert proto.SerializeToString() == before


def test_nothing_is_said_by_the_quantizer(exported, tmp_path, caplog, capfd):
    build("onnx-int8", exported, tmp_path)
    assert caplog.text == ""
    assert "".join(capfd.readouterr()) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", ["roberta", "xlm-roberta", "electra", "distilbert", "albert", "mobilebert", "modernbert"]
)
def test_every_family_quantizes(family, tiny_folder, tiny_model, tmp_path):
    (tmp_path / "fp32").mkdir()
    (tmp_path / "int8").mkdir()
    build("onnx-fp32", tiny_folder(tiny_model(family, initializer_range=0.1)), tmp_path / "fp32")
    info = build("onnx-int8", tmp_path / "fp32", tmp_path / "int8")
    assert info.variant.parity["agreement"] > 0.8
    assert len(TextModel.open(tmp_path / "int8").predict(["a good film"])) == 1


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "albert"])
def test_it_is_right_on_every_processor(family, tiny_folder, tmp_path, monkeypatch):
    """ALBERT's products share weights, with which ONNX Runtime's guard against saturation fails: it is not needed."""
    (tmp_path / "fp32").mkdir()
    (tmp_path / "int8").mkdir()
    build("onnx-fp32", tiny_folder(family), tmp_path / "fp32")
    info = build("onnx-int8", tmp_path / "fp32", tmp_path / "int8")
    assert info.variant.portable
    assert info.variant.session["guard_overflow"] is False
    assert not can_any_saturate(onnx.load(tmp_path / "int8" / "model.onnx"))
    here = TextModel.open(tmp_path / "int8").predict(["a good film"])
    monkeypatch.setattr(onnx_runtime, "describe_cpu", OldProcessor)
    assert TextModel.open(tmp_path / "int8").predict(["a good film"]) == here


class OldProcessor:
    """One without VNNI."""

    has_vnni = False


def test_products_can_stay_in_fp32(exported):
    proto = onnx.load(exported / "model.onnx")
    kept, *others = product_names(proto)
    nodes = {node.name: node.op_type for node in quantize_int8_dynamic_model(proto, [kept]).graph.node}
    assert nodes[kept] == "MatMul"
    assert nodes.keys().isdisjoint(others)


def test_layers_of_the_head_can_stay_in_fp32_too(exported):
    proto = onnx.load(exported / "model.onnx")
    names = product_names(proto)
    heads = [name for name, layer in names.items() if layer in ("bert.pooler.dense", "classifier")]
    assert len(heads) == 2
    for fp32 in (heads, list(names)):
        assert len(list(integer_products(quantize_int8_dynamic_model(proto, fp32)))) == len(names) - len(fp32)


def test_only_an_fp32_export_is_quantized(tiny_folder, quantized, tmp_path):
    with pytest.raises(ModelError, match=r"holds no model\.onnx"):
        build("onnx-int8", tiny_folder("bert"), tmp_path)
    with pytest.raises(ModelError, match="holds no fp32 ONNX export"):
        build("onnx-int8", quantized, tmp_path)


@pytest.mark.parametrize(
    ("difference", "message"),
    [
        ([0, float("nan")], "outputs on golden inputs .* that are not numbers"),
        ([-50, 50], "only 0.0% of the decisions"),
    ],
)
def test_a_broken_model_is_refused(exported, tmp_path, monkeypatch, difference, message):
    real = quantize_int8_dynamic_model
    monkeypatch.setattr(
        dynamic, "quantize_int8_dynamic_model", lambda proto, fp32: add_to_logits(real(proto, fp32), difference)
    )
    sample = decided(exported)
    with pytest.raises(ModelError, match=message):
        build("onnx-int8", exported, tmp_path, parity={0: sample})


def decided(folder):
    """Rows that the model gives the first class."""
    from compress.runtime import open_predictor

    generator = np.random.default_rng(0)
    ids = generator.integers(4, 20, (64, 6))
    arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    first = open_predictor(folder).predict(arrays)["logits"].argmax(axis=1) == 0
    assert first.any()
    return [{name: array[first] for name, array in arrays.items()}]


def test_many_changed_decisions_are_a_warning(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(quantize_export, "SUSPICIOUS", 1.1)
    output = io.StringIO()
    build("onnx-int8", exported, tmp_path, parity={0: decided(exported)}, console=Console("human", err=output))
    assert re.search(r"warning: onnx-int8 repeats only .*% of the decisions of onnx-fp32", output.getvalue())
    assert str(tmp_path) not in output.getvalue()


def test_folders_by_name(exported, tmp_path, monkeypatch):
    folder = quantize_folder(exported, tmp_path / "int8")
    assert read_info(folder).variant.name == "onnx-int8"
    check = check_golden(folder)
    output = io.StringIO()
    monkeypatch.setitem(LIMITS, "int8", ParityLimit(difference=0.0, agreement=1.1))
    quantize_folder(exported, tmp_path / "again", console=Console("human", err=output))
    assert (
        f"warning: {tmp_path / 'again'} (onnx-int8) does not repeat PyTorch: outputs differ by up to"
        in output.getvalue()
    )
    assert f"{check.total.max_abs_difference:.2g}; allowed is 0" in output.getvalue()
    with pytest.raises(UsageError, match="did you mean dynamic"):
        quantize_folder(exported, tmp_path / "other", method="dynamc")


def test_a_model_folder_is_no_export(tiny_folder, tmp_path):
    with pytest.raises(UsageError, match="holds none"):
        quantize_folder(tiny_folder("bert"), tmp_path / "int8")
