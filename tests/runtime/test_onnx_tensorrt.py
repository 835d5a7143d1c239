"""TensorRT inside ONNX Runtime: what can be tested without it, and outputs on a device."""

import json
from ctypes.util import find_library
from importlib.util import find_spec

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from compress.errors import DeviceUnavailable, ModelError
from compress.runtime import RUN_MODES, onnx_tensorrt, open_predictor
from compress.runtime.onnx_runtime import OnnxPredictor
from compress.runtime.onnx_tensorrt import PROVIDER, engine, weights_beside
from compress.runtime.predictor import Placement
from tests.variant_builder import build

AVAILABLE = PROVIDER in ort.get_available_providers()
HAS_LIBRARIES = bool(find_spec("tensorrt") or find_library("nvinfer"))


@pytest.mark.skipif(AVAILABLE, reason="this ONNX Runtime has TensorRT")
def test_without_the_provider_it_is_unavailable(tmp_path, write_sum):
    path = write_sum(tmp_path / "model.onnx")
    with pytest.raises(DeviceUnavailable, match="no TensorrtExecutionProvider"):
        open_predictor(path, Placement("cuda"), RUN_MODES["onnx-tensorrt"])
    with pytest.raises(DeviceUnavailable, match="no TensorrtExecutionProvider"):
        build("onnx-tensorrt", tmp_path, tmp_path)


def test_an_engine_has_bounds_and_is_cached_by_content(tmp_path, write_sum, monkeypatch):
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    path = write_sum(tmp_path / "model.onnx")
    provider, options = engine(path, ["input_ids", "attention_mask"], 40, "fp16")
    assert provider == PROVIDER
    assert options["trt_fp16_enable"] == "True"
    assert options["trt_profile_min_shapes"] == "input_ids:1x1,attention_mask:1x1"
    assert options["trt_profile_opt_shapes"] == "input_ids:8x40,attention_mask:8x40"
    assert options["trt_profile_max_shapes"] == "input_ids:64x40,attention_mask:64x40"
    assert options["trt_engine_cache_path"].startswith(str(tmp_path / "cache"))
    write_sum(tmp_path / "other.onnx", length=8)
    assert engine(tmp_path / "other.onnx", ["input_ids"], 40, "fp32")[1]["trt_fp16_enable"] == "False"
    assert len(list((tmp_path / "cache" / "tensorrt").iterdir())) == 2


def test_weights_next_to_the_graph_are_part_of_its_content(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    path = write_apart(tmp_path / "model.onnx", 1.0)
    assert [each.name for each in weights_beside(path)] == ["its weights"]
    (tmp_path / "README.md").write_text("no part of it")

    def cache_path():
        return engine(path, ["input_ids"], 40, "fp16")[1]["trt_engine_cache_path"]

    before = cache_path()
    assert cache_path() == before
    graph = path.read_bytes()
    write_apart(path, 2.0)
    assert path.read_bytes() == graph
    assert cache_path() != before


def write_apart(path, value):
    """A model that has its weights in a file of its own."""
    table = onnx.numpy_helper.from_array(np.full((64, 64), value, dtype=np.float32), "table")
    node = onnx.helper.make_node("Gather", ["table", "input_ids"], ["logits"])
    ids = onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["batch", "length"])
    logits = onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", "length", 64])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "apart", [ids], [logits], [table]))
    (path.parent / "its weights").unlink(missing_ok=True)
    onnx.save(model, path, save_as_external_data=True, location="its weights", size_threshold=0)
    return path


def test_paths_of_this_machine_are_not_described():
    class Session:
        def get_inputs(self):
            return []

        get_outputs = get_inputs

        def get_providers(self):
            return [PROVIDER]

        def get_provider_options(self):
            return {PROVIDER: {"trt_fp16_enable": "True", "trt_engine_cache_path": "/home/x"}}

    facts = OnnxPredictor(Session(), Placement(), RUN_MODES["onnx-tensorrt"]).describe()
    assert (facts["runtime"], facts["options"]) == ("onnxruntime-tensorrt", {"trt_fp16_enable": "True"})


def test_a_cache_that_cannot_be_created_is_reported(tmp_path, write_sum, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "file"))
    with pytest.raises(DeviceUnavailable, match="engines cannot be cached"):
        engine(write_sum(tmp_path / "model.onnx"), ["input_ids"], 40, "fp16")


@pytest.mark.parametrize(
    ("config", "longest"),
    [({"max_position_embeddings": 64}, 64), ({"max_position_embeddings": 8192}, 512), ({}, 512), (None, 512)],
)
def test_the_longest_text_is_the_model_s(tmp_path, config, longest):
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    assert onnx_tensorrt._longest(tmp_path) == longest


def test_int8_is_not_run_there(tmp_path, write_sum, monkeypatch):
    monkeypatch.setattr(onnx_tensorrt, "check_provider", lambda name: None)
    int8 = RUN_MODES["onnx-tensorrt"].model_copy(update={"precision": "int8"})
    with pytest.raises(ModelError, match="in fp16 or fp32, not in int8"):
        open_predictor(write_sum(tmp_path / "model.onnx"), Placement("cuda"), int8)


@pytest.mark.gpu
@pytest.mark.skipif(not AVAILABLE, reason="this ONNX Runtime has no TensorRT")
@pytest.mark.skipif(not HAS_LIBRARIES, reason="TensorRT's own libraries are not installed")
def test_engines_compute_what_the_cpu_computes(tiny_folder, tmp_path_factory):

    source, work = tmp_path_factory.mktemp("onnx"), tmp_path_factory.mktemp("tensorrt")
    build("onnx-fp32", tiny_folder("bert"), source)
    info = build("onnx-tensorrt", source, work)
    assert info.variant.name == "onnx-tensorrt"
    on_gpu, on_cpu = open_predictor(work, Placement("cuda")), open_predictor(source)
    for rows, length in ((1, 5), (4, 20)):
        arrays = {name: np.ones((rows, length), dtype=np.int64) for name in on_cpu.inputs}
        assert np.abs(on_gpu.predict(arrays)["logits"] - on_cpu.predict(arrays)["logits"]).max() < 0.1
    assert on_gpu.describe()["providers"][0] == PROVIDER
