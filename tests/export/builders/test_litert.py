"""Real LiteRT exports of tiny models."""

import shutil
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

import compress.export.builders.litert as export
from compress.errors import MissingExtra, ModelError
from compress.export.builders.litert import lengths
from compress.model_info import read_info
from compress.runtime import open_predictor
from compress.runtime.text_model import TextModel
from tests.edge_exports import largest_difference, padded_batch
from tests.variant_builder import build

pytestmark = pytest.mark.skipif(find_spec("litert_torch") is None, reason="litert-torch is not installed")


@pytest.fixture(scope="module")
def exported(tiny_folder, tmp_path_factory):
    """A BERT folder and its LiteRT export."""
    source, work = tiny_folder("bert"), tmp_path_factory.mktemp("litert")
    build("litert-fp32", source, work)
    return source, work


def test_lengths_double_up_to_the_longest():
    assert lengths(128) == [16, 32, 64, 128]
    assert lengths(100) == [16, 32, 64, 100]
    assert lengths(16) == [16]
    assert lengths(10) == [10]


def test_the_folder_describes_itself_and_predicts_by_itself(exported):
    source, work = exported
    info = read_info(work)
    assert (info.variant.name, info.variant.format, info.task) == ("litert-fp32", "litert", read_info(source).task)
    assert info.variant.parity["max_abs_difference"] < 1e-4
    assert open_predictor(work).describe()["options"] == {"lengths": [16, 32]}
    assert largest_difference(work, source) < 1e-5
    assert len(TextModel.open(work).predict(["a good film", "bad"])) == 2


def test_a_row_has_the_same_outputs_in_every_length(exported):
    predictor = open_predictor(exported[1])
    short = padded_batch(rows=1, length=11)
    ids = np.pad(short["input_ids"], ((0, 0), (0, 20)))
    wide = {name: np.pad(array, ((0, 0), (0, 20))) for name, array in short.items()} | {"input_ids": ids}
    wide["attention_mask"][0, -1] = 0
    ours, theirs = predictor.predict(short)["logits"], predictor.predict(wide)["logits"]
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_row_that_is_too_long_is_reported(exported):
    with pytest.raises(ModelError, match="a row has 40 tokens; this file has the lengths 16, 32"):
        open_predictor(exported[1]).predict(padded_batch(length=40))


def test_a_corrupt_file_is_reported(exported, tmp_path, capfd):
    shutil.copytree(exported[1], tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.tflite").write_bytes(b"not a model" * 100)
    with pytest.raises(ModelError, match=r"LiteRT cannot read .*: it is empty, truncated, or not a model"):
        open_predictor(tmp_path)
    assert "".join(capfd.readouterr()) == ""


def test_running_imports_no_torch(exported):
    code = f"""
import sys
for name in ("torch", "transformers", "litert_torch", "datasets", "onnx", "jax"):
    sys.modules[name] = None
import compress
print(compress.open({str(exported[1])!r}).predict(["a good film"])[0]["label"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() in ("bad", "good")


def test_outputs_that_differ_are_an_error(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "TOLERANCE", 0.0)
    with pytest.raises(ModelError, match="differ from those of its source"):
        build("litert-fp32", exported[0], tmp_path)


def test_a_model_that_cannot_be_converted_is_reported(exported, tmp_path, monkeypatch):
    def refuse(*_):
        raise RuntimeError("data-dependent control flow")

    monkeypatch.setattr(export, "lengths", refuse)
    with pytest.raises(ModelError, match="LiteRT cannot convert a bert model like this: data-dependent"):
        build("litert-fp32", exported[0], tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_the_library_the_extra_is_named(exported, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "litert_torch", None)
    with pytest.raises(MissingExtra, match="litert_torch is needed") as raised:
        build("litert-fp32", exported[0], tmp_path)
    assert "compress-encoders[litert]" in raised.value.hint
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(MissingExtra, match="ai_edge_litert is needed") as raised:
        open_predictor(exported[1])
    assert "compress-encoders[litert-runtime]" in raised.value.hint
