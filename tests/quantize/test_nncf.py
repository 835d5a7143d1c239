"""INT8 OpenVINO models made by NNCF of real exports of tiny models."""

import os
import sys
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import pytest

import compress.quantize.nncf as nncf
from compress.errors import MissingExtra, ModelError, UsageError
from compress.families import FAMILIES
from compress.model_folder.model_info import read_info
from compress.runtime import open_predictor
from compress.runtime.text_model import TextModel
from compress.storage.file_digests import digests
from tests.quantize.sample_rows import labelled_rows, sample_batches
from tests.variant_builder import build

pytest.importorskip("openvino", reason="openvino is not installed")
pytest.importorskip("nncf", reason="nncf is not installed")


@pytest.fixture(scope="module")
def quantized(exported, tmp_path_factory):
    work = tmp_path_factory.mktemp("quantized")
    build("openvino-int8", exported, work, calibration=sample_batches)
    return work


def test_it_predicts_like_its_source(quantized, exported):
    info = open_predictor(quantized).describe()
    assert (info["runtime"], info["precision"]) == ("openvino", "int8")
    batch = sample_batches()[0]
    ours, theirs = (open_predictor(folder).predict(batch)["logits"] for folder in (quantized, exported))
    assert 0 < np.abs(ours - theirs).max() < 0.5
    assert len(TextModel.open(quantized).predict(["a good film", "bad"])) == 2


def test_weights_are_integers_that_no_cpu_saturates(quantized, exported):
    import openvino

    assert read_info(quantized).variant.portable is True
    model = openvino.Core().read_model(quantized / "openvino_model.xml")
    kinds = [each.get_element_type().get_type_name() for each in model.get_ops() if each.get_type_name() == "Constant"]
    # The products of a layer (query, key and value are one), the pooler, the head, and the tables of embeddings.
    assert kinds.count("i8") >= 2 * 4 + 2
    assert (quantized / "openvino_model.bin").stat().st_size < 0.5 * (exported / "model.onnx").stat().st_size


@pytest.mark.slow
def test_the_same_rows_give_the_same_file_and_nothing_is_printed(quantized, exported, tmp_path, monkeypatch, capfd):
    (tmp_path / "work").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    build("openvino-int8", exported, tmp_path / "work", calibration=sample_batches)
    assert digests(tmp_path / "work")["openvino_model.bin"] == digests(quantized)["openvino_model.bin"]
    assert not list(Path.cwd().iterdir())
    assert "".join(capfd.readouterr()) == ""


def test_a_model_that_changes_most_decisions_is_refused(exported, tmp_path, monkeypatch):
    for limit in ("SUSPICIOUS", "LEAST_AGREEMENT"):
        monkeypatch.setattr(f"compress.quantize.quantize_export.{limit}", 1.1)
    with pytest.raises(ModelError, match=r"openvino-int8 repeats only \d+\.\d% of the decisions of onnx-fp32"):
        build("openvino-int8", exported, tmp_path, calibration=sample_batches, parity={4: sample_batches()})


def test_a_row_does_not_depend_on_its_batch(quantized):
    predictor, batch = open_predictor(quantized), sample_batches()[0]
    alone = predictor.predict({name: array[:1] for name, array in batch.items()})["logits"]
    np.testing.assert_allclose(predictor.predict(batch)["logits"][:1], alone, atol=1e-4)


@pytest.mark.slow
def test_operations_return_to_fp32_where_the_score_drops(exported, tmp_path, monkeypatch):
    """Only the two first looks, at the unquantized model, see a good score: every operation returns."""
    scores = chain([1.0, 1.0], repeat(0.5))
    monkeypatch.setattr(nncf, "train_scorer", lambda context: lambda run: next(scores))
    monkeypatch.setattr(nncf, "MOST_RETURNED", 100)
    build("openvino-int8-accuracy", exported, tmp_path, settings={"max_drop": 0.01}, calibration=sample_batches)
    assert 'type="FakeQuantize"' not in (tmp_path / "openvino_model.xml").read_text(encoding="utf-8")
    batch = sample_batches()[0]
    ours, theirs = (open_predictor(folder).predict(batch)["logits"] for folder in (tmp_path, exported))
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.slow
def test_a_score_that_holds_returns_nothing(exported, tmp_path):
    rows = {"calibration": sample_batches, "train_rows": labelled_rows}
    info = build("openvino-int8-accuracy", exported, tmp_path, settings={"max_drop": 1.0}, **rows)
    assert info.variant.portable
    assert 'type="FakeQuantize"' in (tmp_path / "openvino_model.xml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["openvino-int8", "openvino-int8-accuracy"])
def test_one_row_is_too_few(exported, tmp_path, name):
    with pytest.raises(UsageError, match="takes its ranges from sample rows; got 1, expected at least 2"):
        build(name, exported, tmp_path, calibration=lambda: sample_batches(1), train_rows=labelled_rows)
    assert not list(tmp_path.iterdir())


def test_a_corrupt_export_is_reported(exported, tmp_path):
    (tmp_path / "model.onnx").write_bytes((exported / "model.onnx").read_bytes()[:2000])
    (tmp_path / "work").mkdir()
    with pytest.raises(ModelError, match="NNCF cannot quantize"):
        build("openvino-int8", tmp_path, tmp_path / "work", calibration=sample_batches)
    assert not list((tmp_path / "work").iterdir())


def test_without_nncf_the_extra_is_named(exported, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nncf", None)
    with pytest.raises(MissingExtra, match="nncf is needed") as raised:
        build("openvino-int8", exported, tmp_path, calibration=sample_batches)
    assert "compress-encoders[openvino]" in raised.value.hint


@pytest.mark.slow
@pytest.mark.skipif("ONEDNN_MAX_CPU_ISA" in os.environ, reason="OpenVINO compiles for instructions it may not use")
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_quantizes(family, tiny_folder, tiny_model, tmp_path):
    (tmp_path / "fp32").mkdir()
    (tmp_path / "int8").mkdir()
    build("onnx-fp32", tiny_folder(tiny_model(family, initializer_range=0.1)), tmp_path / "fp32")
    rows = {"calibration": sample_batches, "parity": {4: sample_batches()}}
    info = build("openvino-int8", tmp_path / "fp32", tmp_path / "int8", **rows)
    assert info.variant.portable
    assert len(TextModel.open(tmp_path / "int8").predict(["a good film"])) == 1
