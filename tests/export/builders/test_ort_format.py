"""ONNX Runtime's own format, converted from fp32 and INT8 files of tiny models."""

import numpy as np
import pytest

from compress.errors import ModelError
from compress.export.builders import ort_format
from compress.families import FAMILIES
from compress.measure.resources.footprint import footprint
from compress.model_folder.model_info import read_info, write_info
from compress.quantize import embeddings_4bit
from compress.runtime import open_predictor
from compress.runtime.text_model import TextModel
from compress.storage.file_digests import digests
from tests.variant_builder import build

TEXTS = ["a good film", "bad plot"]


@pytest.fixture(scope="module")
def exported(tiny_folder, tmp_path_factory):
    """The fp32 ONNX export of a tiny BERT."""
    work = tmp_path_factory.mktemp("onnx")
    build("onnx-fp32", tiny_folder("bert"), work)
    return work


def converted(source, folder, name):
    folder.mkdir()
    build(name, source, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_repeats_the_onnx_file(family, tiny_folder, tmp_path):
    build("onnx-fp32", tiny_folder(family), tmp_path)
    work = converted(tmp_path, tmp_path / "ort", "ort-fp32")
    info = read_info(work)
    assert (info.variant.name, info.variant.runtime, info.step) == ("ort-fp32", "onnxruntime", "ort-fp32")
    assert info.variant.parity["max_abs_difference"] < 1e-4
    ours, theirs = TextModel.open(work).predict(TEXTS), TextModel.open(tmp_path).predict(TEXTS)
    assert [answer["label"] for answer in ours] == [answer["label"] for answer in theirs]


def test_the_folder_has_no_onnx_file_and_its_size_is_known(exported, tmp_path):
    work = converted(exported, tmp_path / "ort", "ort-fp32")
    assert {"model.ort", "config.json", "tokenizer.json", "compress.json"} <= set(digests(work))
    assert "model.onnx" not in digests(work)
    assert footprint(work).bytes_weights == (work / "model.ort").stat().st_size


@pytest.mark.parametrize("method", ["onnx-int8", "onnx-int8-unsigned", "onnx-int8-embeddings-4bit"])
def test_an_int8_file_gives_the_same_outputs(method, exported, tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings_4bit, "LEAST_ROWS", 64)
    int8 = converted(exported, tmp_path / "int8", method)
    work = converted(int8, tmp_path / "ort", "ort-int8")
    source, info = read_info(int8).variant, read_info(work).variant
    assert (info.precision, info.method, info.batch_sensitive) == ("int8", source.method, source.batch_sensitive)
    ours, theirs = open_predictor(work), open_predictor(int8)
    arrays = {name: np.ones((3, 7), dtype=np.int64) for name in ours.inputs}
    np.testing.assert_allclose(ours.predict(arrays)["logits"], theirs.predict(arrays)["logits"], atol=1e-5)


@pytest.mark.parametrize("guard", [True, False])
@pytest.mark.parametrize("portable", [True, False, None])
def test_a_file_is_as_portable_as_its_source(portable, guard, exported, tmp_path):
    int8 = converted(exported, tmp_path / "int8", "onnx-int8")
    info = read_info(int8)
    changes = {"portable": portable, "session": {"guard_overflow": guard}}
    write_info(int8, info.model_copy(update={"variant": info.variant.model_copy(update=changes)}))
    assert read_info(converted(int8, tmp_path / "ort", "ort-int8")).variant.portable is portable


def test_a_graph_that_cannot_be_converted(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(ort_format, "existing_onnx", lambda folder: folder / "config.json")
    with pytest.raises(ModelError, match=r"config\.json cannot be converted to the ORT format: "):
        converted(exported, tmp_path / "ort", "ort-fp32")


@pytest.mark.parametrize("kept", [0, 10, 5000])
def test_a_truncated_file_is_named(kept, exported, tmp_path):
    work = converted(exported, tmp_path / "ort", "ort-fp32")
    (work / "model.ort").write_bytes((work / "model.ort").read_bytes()[:kept])
    with pytest.raises(ModelError, match=r"cannot read .*model\.ort: it is empty, truncated, or not a model\."):
        open_predictor(work)
