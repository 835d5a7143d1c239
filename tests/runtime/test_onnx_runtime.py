"""Bare ONNX files and exported folders, written with onnx alone."""

import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest
from onnx import TensorProto

from compress.errors import DeviceUnavailable, ModelError
from compress.model_folder.model_info import FolderInfo, VariantInfo, write_info
from compress.runtime import onnx_runtime, open_predictor
from compress.runtime.onnx_runtime import GUARD, existing_onnx, make_session
from compress.runtime.predictor import ONE_THREAD, Placement

FP32 = VariantInfo(name="onnx-fp32", format="onnx", precision="fp32", runtime="onnxruntime")


@pytest.mark.parametrize("dtype", [TensorProto.INT64, TensorProto.INT32])
def test_a_bare_file_runs_and_labels_are_ignored(write_sum, tmp_path, arrays, dtype):
    predictor = open_predictor(write_sum(tmp_path / "any.onnx", dtype))
    assert predictor.inputs == ("input_ids", "attention_mask")
    outputs = predictor.predict(arrays)
    assert outputs["logits"] == 11
    assert outputs["logits"].dtype == np.float32


@pytest.mark.parametrize("name", ["model.onnx", "onnx/model.onnx"])
def test_a_folder_without_compress_json_opens(write_sum, tmp_path, arrays, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    write_sum(tmp_path / name)
    assert existing_onnx(tmp_path) == tmp_path / name
    assert open_predictor(tmp_path).predict(arrays)["logits"] == 11


def test_a_folder_has_session_options_of_its_own(write_sum, tmp_path):
    write_sum(tmp_path / "model.onnx")
    own = FP32.model_copy(update={"session": {"disabled_optimizers": ["SkipLayerNormFusion"]}})
    write_info(tmp_path, FolderInfo(step="export", made_by="tests", variant=own))
    facts = open_predictor(tmp_path, Placement(threads=2), FP32).describe()
    assert facts["session"] == {"disabled_optimizers": ["SkipLayerNormFusion"]}
    assert (facts["threads"], facts["precision"], facts["device"]) == (2, "fp32", "cpu")


def test_a_folder_runs_as_nothing_but_what_it_holds(write_sum, tmp_path):
    write_sum(tmp_path / "model.onnx")
    write_info(tmp_path, FolderInfo(step="export", made_by="tests", variant=FP32))
    with pytest.raises(ModelError, match="holds onnx-fp32 and cannot run as onnx-int8"):
        open_predictor(tmp_path, variant=FP32.model_copy(update={"name": "onnx-int8"}))


def test_a_foreign_folder_cannot_set_what_it_likes(write_sum, tmp_path):
    write_sum(tmp_path / "model.onnx")
    own = FP32.model_copy(update={"session": {"disabled_optimizer": []}})
    write_info(tmp_path, FolderInfo(step="export", made_by="tests", variant=own))
    with pytest.raises(ModelError, match="did you mean disabled_optimizers"):
        open_predictor(tmp_path)


def test_an_unknown_runtime_is_named(write_sum, tmp_path):
    write_sum(tmp_path / "model.onnx")
    write_info(
        tmp_path, FolderInfo(step="export", made_by="tests", variant=FP32.model_copy(update={"runtime": "onnx"}))
    )
    with pytest.raises(ModelError, match="no runtime is called 'onnx'"):
        open_predictor(tmp_path)


def test_a_missing_input_is_named(write_sum, tmp_path, arrays):
    predictor = open_predictor(write_sum(tmp_path / "model.onnx"))
    del arrays["attention_mask"]
    with pytest.raises(ModelError, match="attention_mask was not given"):
        predictor.predict(arrays)


def test_an_input_that_does_not_fit_a_fixed_shape_is_reported_with_its_shape(write_sum, tmp_path, arrays):
    predictor = open_predictor(write_sum(tmp_path / "model.onnx", length=8))
    with pytest.raises(ModelError, match=r"cannot run onnx on input_ids \(1, 3\)"):
        predictor.predict(arrays)


def test_an_input_type_that_tokens_do_not_have_is_refused(write_sum, tmp_path, arrays):
    predictor = open_predictor(write_sum(tmp_path / "model.onnx", TensorProto.DOUBLE))
    with pytest.raises(ModelError, match=r"expected: \(tensor\(double\)\)"):
        predictor.predict(arrays)


@pytest.mark.parametrize("content", [b"", b"no model at all", None])
def test_a_corrupt_file_is_an_error_of_ours(write_sum, tmp_path, capfd, content):
    path = write_sum(tmp_path / "model.onnx")
    path.write_bytes(path.read_bytes()[:40] if content is None else content)
    with pytest.raises(ModelError, match=r"cannot read .* it is empty, truncated, or not a model"):
        open_predictor(path)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "no model at .*nowhere"),
        ("empty", "is a folder without a model"),
        ("notes.txt", "notes.txt is not a model"),
    ],
)
def test_what_holds_no_model_is_reported(tmp_path, name, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ModelError, match=message):
        open_predictor(tmp_path / name)


def test_cuda_without_its_provider_is_unavailable(write_sum, tmp_path, monkeypatch):
    path = write_sum(tmp_path / "model.onnx")
    monkeypatch.setattr(onnx_runtime.ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(DeviceUnavailable, match="no CUDAExecutionProvider"):
        open_predictor(path, Placement("cuda"))


def test_a_provider_that_cannot_start_is_unavailable(write_sum, tmp_path, monkeypatch):
    """Its libraries are missing; a model that cannot be read is reported as on a CPU."""
    session = onnx_runtime.ort.InferenceSession

    def start(model, providers, **options):
        if providers[0][0] != "CPUExecutionProvider":
            raise RuntimeError("please install the libraries")
        return session(model, providers=providers, **options)

    monkeypatch.setattr(onnx_runtime, "check_provider", lambda name: None)
    monkeypatch.setattr(onnx_runtime.ort, "InferenceSession", start)
    path = write_sum(tmp_path / "model.onnx")
    with pytest.raises(DeviceUnavailable, match="could not start CUDAExecutionProvider: please install the libraries"):
        open_predictor(path, Placement("cuda"))
    path.write_bytes(b"damaged")
    with pytest.raises(ModelError, match="cannot read"):
        open_predictor(path, Placement("cuda"))


@pytest.mark.parametrize(
    ("vnni", "settings", "guarded"),
    [
        (False, {}, True),
        (None, {}, True),
        (True, {}, False),
        (False, {"guard_overflow": False}, False),
    ],
)
def test_products_are_guarded_where_they_could_overflow(write_sum, tmp_path, monkeypatch, vnni, settings, guarded):
    class Processor:
        has_vnni = vnni

    monkeypatch.setattr(onnx_runtime, "describe_cpu", Processor)
    session = make_session(write_sum(tmp_path / "model.onnx"), ONE_THREAD, settings)
    with nullcontext() if guarded else pytest.raises(RuntimeError, match="does not have configuration"):
        assert session.get_session_options().get_session_config_entry(GUARD) == "1"


def test_an_exported_model_predicts_without_torch(write_sum, tmp_path):
    write_sum(tmp_path / "model.onnx")
    code = f"""
import sys
for name in ("torch", "transformers", "datasets"):
    sys.modules[name] = None
import numpy as np
from pathlib import Path
from compress.runtime import open_predictor
ones = np.ones((2, 3), dtype=np.int64)
print(open_predictor(Path({str(tmp_path)!r})).predict({{"input_ids": ones, "attention_mask": ones}})["logits"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "6.0"
