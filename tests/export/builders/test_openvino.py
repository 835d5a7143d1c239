"""Real OpenVINO exports of tiny models of every family."""

import os
from pathlib import Path

import numpy as np
import pytest

import compress.export.builders.openvino as export
from compress.errors import ModelError
from compress.families import FAMILIES
from compress.make_variant import export_from_model
from compress.model_folder.model_info import read_info
from compress.runtime import RUN_MODES, open_predictor
from compress.runtime.text_model import TextModel
from compress.storage.file_digests import digests
from tests.variant_builder import build

pytest.importorskip("openvino", reason="openvino is not installed")
TEXTS = ["a good film", "bad plot"]


@pytest.fixture(scope="module")
def exported(tiny_folder, tmp_path_factory):
    """A BERT folder, its ONNX export and its OpenVINO export."""
    source = tiny_folder("bert")
    graph, work = tmp_path_factory.mktemp("onnx"), tmp_path_factory.mktemp("openvino")
    build("onnx-fp32", source, graph)
    build("openvino-fp32", graph, work)
    return source, graph, work


def test_the_folder_describes_itself_and_predicts_by_itself(exported):
    source, _, work = exported
    info, before = read_info(work), read_info(source)
    assert (info.task, info.shape, info.step) == (before.task, before.shape, "openvino-fp32")
    assert (info.variant.name, info.variant.runtime) == ("openvino-fp32", "openvino")
    assert info.variant.parity["max_abs_difference"] < 1e-4
    assert info.variant.parity["agreement"] == 1
    files = {"openvino_model.xml", "openvino_model.bin", "config.json", "tokenizer.json", "compress.json"}
    assert files <= set(digests(work))
    assert not {"model.onnx", "model.safetensors"} & set(digests(work))
    ours, theirs = TextModel.open(work).predict(TEXTS), TextModel.open(source).predict(TEXTS)
    assert [answer["label"] for answer in ours] == [answer["label"] for answer in theirs]


def test_weights_stay_in_full_precision_and_there_are_no_paths_of_this_machine(exported):
    source, _, work = exported
    graph = (work / "openvino_model.xml").read_text(encoding="utf-8")
    assert 'precision="FP16"' not in graph
    assert str(source.parent) not in graph
    assert str(Path.cwd()) not in graph
    floats = 4 * read_info(source).shape.parameters
    assert (work / "openvino_model.bin").stat().st_size > 0.9 * floats


def test_the_onnx_folder_runs_in_openvino_too(exported):
    _, graph, work = exported
    own, other = open_predictor(work), open_predictor(graph, variant=RUN_MODES["openvino"])
    arrays = {name: np.ones((3, 7), dtype=np.int64) for name in own.inputs}
    np.testing.assert_allclose(own.predict(arrays)["logits"], other.predict(arrays)["logits"], atol=1e-5)
    assert other.describe()["precision"] == "fp32"


@pytest.mark.skipif("ONEDNN_MAX_CPU_ISA" in os.environ, reason="OpenVINO compiles bf16 for instructions it may not use")
def test_an_openvino_folder_runs_in_bf16(exported):
    _, _, work = exported
    own = open_predictor(work)
    arrays = {name: np.ones((3, 7), dtype=np.int64) for name in own.inputs}
    rounded = open_predictor(work, variant=RUN_MODES["openvino-bf16"])
    assert np.abs(rounded.predict(arrays)["logits"] - own.predict(arrays)["logits"]).max() < 0.5


def test_a_text_longer_than_the_model_is_reported(exported):
    _, _, work = exported
    predictor = open_predictor(work)
    with pytest.raises(ModelError, match=r"OpenVINO cannot run openvino-fp32 on input_ids \(1, 100\)"):
        predictor.predict({name: np.ones((1, 100), dtype=np.int64) for name in predictor.inputs})


def test_outputs_that_differ_are_an_error(exported, tmp_path, monkeypatch):
    _, graph, _ = exported
    monkeypatch.setattr(export, "TOLERANCE", 0.0)
    with pytest.raises(ModelError, match="differ from those of its source"):
        build("openvino-fp32", graph, tmp_path)


def test_a_folder_without_onnx_export_is_reported(tiny_folder, tmp_path):
    with pytest.raises(ModelError, match=r"holds no model\.onnx"):
        build("openvino-fp32", tiny_folder("bert"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_has_the_same_outputs(tiny_model, tiny_tokenizer, tiny_task, tmp_path, family):
    folder = export_from_model(tiny_model(family), tiny_tokenizer, tmp_path / family, task=tiny_task, form="openvino")
    assert read_info(folder).variant.parity["max_abs_difference"] < 1e-4
    assert TextModel.open(folder).predict(TEXTS)
