"""OpenVINO: ONNX files as they are, and its own."""

import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto

from compress.errors import MissingExtra, ModelError
from compress.model_folder.model_info import FolderInfo, write_info
from compress.runtime import RUN_MODES, open_predictor
from compress.runtime.openvino_runtime import load_openvino, settings
from compress.runtime.predictor import ONE_THREAD, Placement

pytest.importorskip("openvino", reason="openvino is not installed")
OPENVINO = RUN_MODES["openvino"]


@pytest.mark.parametrize("dtype", [TensorProto.INT64, TensorProto.INT32, TensorProto.DOUBLE])
def test_an_onnx_file_runs_and_labels_are_ignored(tmp_path, write_sum, arrays, dtype):
    predictor = open_predictor(write_sum(tmp_path / "any.onnx", dtype), variant=OPENVINO)
    assert predictor.inputs == ("input_ids", "attention_mask")
    assert predictor.predict(arrays)["logits"] == 11
    assert predictor.predict(arrays)["logits"].dtype == np.float32


def test_its_own_file_runs(tmp_path, write_sum, arrays):
    openvino = load_openvino()
    openvino.save_model(openvino.Core().read_model(write_sum(tmp_path / "any.onnx")), tmp_path / "openvino_model.xml")
    (tmp_path / "any.onnx").unlink()
    for path in (tmp_path / "openvino_model.xml", tmp_path):
        assert open_predictor(path).predict(arrays)["logits"] == 11


def test_outputs_are_not_overwritten_by_the_next_batch(tmp_path, write_sum, arrays):
    predictor = open_predictor(write_sum(tmp_path / "any.onnx"), variant=OPENVINO)
    before = predictor.predict(arrays)["logits"]
    predictor.predict({name: array + 1 for name, array in arrays.items()})
    assert before == 11


def test_requested_precision_and_thread_settings_are_applied(tmp_path, write_sum):
    path = write_sum(tmp_path / "any.onnx")
    predictor = open_predictor(path, variant=OPENVINO)
    assert predictor.describe()["options"]["INFERENCE_PRECISION_HINT"] == "f32"
    applied = predictor._compiled.get_property
    assert str(applied("INFERENCE_PRECISION_HINT")) == "<Type: 'float32'>"
    assert applied("ENABLE_CPU_PINNING") is False
    assert applied("NUM_STREAMS") == 1
    assert settings(OPENVINO, ONE_THREAD)["INFERENCE_PRECISION_HINT"] == "f32"
    assert settings(OPENVINO, Placement(threads=3))["INFERENCE_NUM_THREADS"] == 3
    assert settings(RUN_MODES["openvino-bf16"], ONE_THREAD)["INFERENCE_PRECISION_HINT"] == "bf16"
    with pytest.raises(ModelError, match="did you mean int8"):
        settings(OPENVINO.model_copy(update={"precision": "int9"}), ONE_THREAD)


def test_a_missing_input_is_named(tmp_path, write_sum, arrays):
    predictor = open_predictor(write_sum(tmp_path / "any.onnx"), variant=OPENVINO)
    del arrays["attention_mask"]
    with pytest.raises(ModelError, match="attention_mask was not given"):
        predictor.predict(arrays)


def test_inputs_of_unequal_shape_are_refused(tmp_path, write_sum, arrays):
    predictor = open_predictor(write_sum(tmp_path / "any.onnx"), variant=OPENVINO)
    arrays["attention_mask"] = np.ones((1, 2))
    with pytest.raises(ModelError, match=r"cannot run openvino on input_ids \(1, 3\), attention_mask \(1, 2\)"):
        predictor.predict(arrays)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failure_never_returns_the_outputs_of_the_batch_before(tmp_path, write_sum, arrays, threads):
    predictor = open_predictor(write_sum(tmp_path / "any.onnx"), Placement(threads=threads), OPENVINO)
    assert predictor.predict(arrays)["logits"] == 11
    with pytest.raises(ModelError, match="cannot run"):
        predictor.predict({"input_ids": np.ones((1, 3)), "attention_mask": np.ones((1, 2))})
    assert predictor.predict(arrays)["logits"] == 11


def test_an_input_that_does_not_fit_a_fixed_shape_is_reported_with_its_shape(tmp_path, write_sum, arrays):
    predictor = open_predictor(write_sum(tmp_path / "model.onnx", length=8), variant=OPENVINO)
    with pytest.raises(ModelError, match=r"cannot run openvino on input_ids \(1, 3\)"):
        predictor.predict(arrays)


@pytest.mark.parametrize("content", [b"", b"no model at all", b"<?xml version='1.0'?><net name='x'>"])
@pytest.mark.parametrize("name", ["any.xml", "any.onnx"])
def test_a_corrupt_file_is_an_error_of_ours(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "any.bin").write_bytes(b"")
    with pytest.raises(ModelError, match=r"OpenVINO cannot read .*any"):
        open_predictor(tmp_path / name, variant=OPENVINO)


@pytest.mark.parametrize("suffix", ["xml", "bin"])
def test_its_own_files_that_are_cut_off_are_reported_in_words(tmp_path, write_wide, suffix):
    openvino = load_openvino()
    graph = tmp_path / "openvino_model.xml"
    openvino.save_model(openvino.Core().read_model(str(write_wide(tmp_path / "wide.onnx"))), str(graph))
    cut = graph.with_suffix(f".{suffix}")
    cut.write_bytes(cut.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"openvino_model\.xml: it is empty, truncated, or not a model\.$"):
        open_predictor(graph)


def test_a_folder_cannot_have_settings(tmp_path, write_sum):
    write_sum(tmp_path / "model.onnx")
    own = OPENVINO.model_copy(update={"format": "onnx", "session": {"CACHE_DIR": "/"}})
    write_info(tmp_path, FolderInfo(step="export", made_by="tests", variant=own))
    with pytest.raises(ModelError, match="sets CACHE_DIR"):
        open_predictor(tmp_path)


def test_without_openvino_the_extra_is_named(tmp_path, write_sum, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtra, match="openvino is needed"):
        open_predictor(write_sum(tmp_path / "any.onnx"), variant=OPENVINO)


def test_it_needs_no_torch_and_sends_no_telemetry(tmp_path, write_sum):
    write_sum(tmp_path / "model.onnx")
    code = f"""
import sys
for name in ("torch", "transformers", "datasets", "onnx"):
    sys.modules[name] = None
import numpy as np
from pathlib import Path
from compress.runtime import RUN_MODES, open_predictor
ones = np.ones((2, 3), dtype=np.int64)
predictor = open_predictor(Path({str(tmp_path)!r}), variant=RUN_MODES["openvino"])
print(predictor.predict({{"input_ids": ones, "attention_mask": ones}})["logits"])
assert sys.modules.get("openvino_telemetry") is None
assert predictor.describe()["device_name"]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "6.0"
