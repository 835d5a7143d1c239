"""Static INT8 models made by neural-compressor of tiny models."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import compress.quantize.neural_compressor as neural_compressor
import compress.quantize.quantize_export as quantize_export
from compress.errors import MissingExtra, ModelError, UsageError
from compress.model_folder.model_info import read_info
from compress.quantize.integer_products import can_any_saturate, integer_products
from compress.runtime import open_predictor
from compress.runtime.text_model import TextModel
from compress.storage.file_digests import digests
from tests.quantize.sample_rows import labelled_rows, sample_batches
from tests.variant_builder import build

pytest.importorskip("neural_compressor", reason="neural-compressor is not installed")
pytestmark = pytest.mark.slow

NAME = "onnx-int8-neural-compressor"
ROWS = {"calibration": sample_batches, "train_rows": labelled_rows}


@pytest.fixture(scope="module")
def source(tiny_folder):
    return tiny_folder("bert")


@pytest.fixture(scope="module")
def quantized(source, tmp_path_factory):
    work = tmp_path_factory.mktemp("quantized")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantize_export, "SUSPICIOUS", 0.0)  # random weights have narrow decisions
        build(NAME, source, work, settings={"max_drop": 1.0}, **ROWS)
    return work


def test_it_predicts_like_the_model(quantized, source):
    info = read_info(quantized)
    assert (info.variant.name, info.variant.method, info.variant.portable) == (NAME, "neural-compressor", True)
    assert (info.task, info.shape) == (read_info(source).task, read_info(source).shape)
    assert 0 < info.variant.parity["max_abs_difference"] < 1
    assert len(TextModel.open(quantized).predict(["a good film", "bad"])) == 2


def test_products_and_embeddings_are_integers(quantized):
    proto = onnx.load(quantized / "model.onnx")
    # The products of a layer (query, key and value are one), the pooler and the head.
    assert len(list(integer_products(proto))) == 2 * 4 + 2
    assert not can_any_saturate(proto)
    floats = [
        table.name
        for table in proto.graph.initializer
        if len(table.dims) == 2 and table.data_type == onnx.TensorProto.FLOAT
    ]
    assert floats == []
    assert {node.domain for node in proto.graph.node} == {""}


def test_a_row_does_not_depend_on_its_batch(quantized):
    predictor, batch = open_predictor(quantized), sample_batches()[0]
    alone = predictor.predict({name: array[:1] for name, array in batch.items()})["logits"]
    np.testing.assert_allclose(predictor.predict(batch)["logits"][:1], alone, atol=1e-5)


def test_the_same_rows_give_the_same_file_and_nothing_is_printed(quantized, source, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(quantize_export, "SUSPICIOUS", 0.0)
    (tmp_path / "work").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    build(NAME, source, tmp_path / "work", settings={"max_drop": 1.0}, **ROWS)
    assert digests(tmp_path / "work")["model.onnx"] == digests(quantized)["model.onnx"]
    assert not list(Path.cwd().iterdir())
    assert "".join(capfd.readouterr()) == ""


def test_configurations_are_tried_until_the_score_holds(source, tmp_path, monkeypatch):
    """The first trial loses a point too much, the second half of it; the third is the one without FFN outputs."""
    scores = iter([0.9, 0.9, 0.8, 0.85, 0.9])  # the reference, the library's own look at it, three trials
    monkeypatch.setattr(neural_compressor, "train_scorer", lambda context: lambda run: next(scores))
    monkeypatch.setattr(quantize_export, "SUSPICIOUS", 0.0)
    build(NAME, source, tmp_path, settings={"max_drop": 0.01}, **ROWS)
    assert next(scores, None) is None
    assert len(list(integer_products(onnx.load(tmp_path / "model.onnx")))) == 2 * 3 + 2


@pytest.mark.parametrize(
    "family", ["roberta", "xlm-roberta", "electra", "distilbert", "albert", "mobilebert", "modernbert"]
)
def test_every_family_quantizes(family, tiny_folder, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(quantize_export, "SUSPICIOUS", 0.0)
    folder = tiny_folder(tiny_model(family, initializer_range=0.1))
    info = build(NAME, folder, tmp_path, settings={"max_drop": 1.0}, **ROWS)
    assert info.variant.portable
    assert list(integer_products(onnx.load(tmp_path / "model.onnx")))
    assert len(TextModel.open(tmp_path).predict(["a good film"])) == 1


def test_without_labels_the_first_configuration_is_used(quantized, source, tmp_path):
    build(NAME, source, tmp_path, calibration=sample_batches)
    assert digests(tmp_path)["model.onnx"] == digests(quantized)["model.onnx"]


def test_one_row_is_too_few(source, tmp_path):
    with pytest.raises(UsageError, match="takes its ranges from sample rows; got 1, expected at least 2"):
        build(NAME, source, tmp_path, calibration=lambda: sample_batches(1), train_rows=labelled_rows)
    assert not list(tmp_path.iterdir())


def test_a_model_that_cannot_be_traced_is_reported(source, tmp_path, monkeypatch):
    def refuse(*_):
        raise RuntimeError("data-dependent control flow")

    monkeypatch.setattr(neural_compressor._CalledByArrays, "forward", refuse)
    with pytest.raises(ModelError, match="neural-compressor cannot quantize a bert model like this"):
        build(NAME, source, tmp_path, settings={"max_drop": 1.0}, **ROWS)
    assert not list(tmp_path.iterdir())


def test_without_the_library_the_extra_is_named(source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "neural_compressor", None)
    with pytest.raises(MissingExtra, match="needed") as raised:
        build(NAME, source, tmp_path, settings={"max_drop": 1.0}, **ROWS)
    assert "compress-encoders[neural-compressor]" in raised.value.hint
