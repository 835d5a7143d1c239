"""Real ExecuTorch exports of tiny models."""

import shutil
import subprocess
import sys

import pytest

import compress.export.builders.executorch as export
from compress.errors import MissingExtra, ModelError
from compress.model_info import read_info
from compress.runtime import open_predictor
from compress.runtime.predictor import Placement
from compress.runtime.text_model import TextModel
from tests.edge_exports import largest_difference, padded_batch
from tests.variant_builder import build

pytest.importorskip("executorch", reason="executorch is not installed")


@pytest.fixture(scope="module")
def exported(tiny_folder, tmp_path_factory):
    """A BERT folder and its ExecuTorch export."""
    source, work = tiny_folder("bert"), tmp_path_factory.mktemp("executorch")
    build("executorch-fp32", source, work)
    return source, work


def test_the_folder_describes_itself_and_predicts_by_itself(exported):
    source, work = exported
    info = read_info(work)
    assert (info.variant.name, info.variant.format, info.task) == (
        "executorch-fp32",
        "executorch",
        read_info(source).task,
    )
    assert info.variant.parity["max_abs_difference"] < 1e-4
    assert info.variant.parity["alone_or_in_batch"] == 0
    assert largest_difference(work, source) < 1e-5
    assert len(TextModel.open(work).predict(["a good film", "bad"])) == 2


def test_a_bare_file_names_its_inputs(exported, tmp_path):
    shutil.copy(exported[1] / "model.pte", tmp_path / "other.pte")
    predictor = open_predictor(tmp_path / "other.pte")
    assert predictor.inputs == ("input_ids", "attention_mask", "token_type_ids")
    assert predictor.describe()["options"] == {"longest": 32}


def test_a_row_that_is_too_long_is_reported(exported):
    predictor = open_predictor(exported[1])
    with pytest.raises(ModelError, match="a row has 33 tokens; this file reads up to 32"):
        predictor.predict(padded_batch(length=33))


def test_a_corrupt_file_is_reported(exported, tmp_path, capfd):
    shutil.copytree(exported[1], tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.pte").write_bytes((exported[1] / "model.pte").read_bytes()[:5000])
    with pytest.raises(ModelError, match=r"ExecuTorch cannot read .*: it is empty, truncated, or not a model"):
        open_predictor(tmp_path)
    assert "".join(capfd.readouterr()) == ""


def test_programs_of_a_process_share_their_threads(exported):
    predictor = open_predictor(exported[1])
    with pytest.raises(ModelError, match="programs in use have 1, and 2 are requested"):
        open_predictor(exported[1], Placement("cpu", 2))
    assert predictor.describe()["threads"] == 1


def test_running_imports_neither_transformers_nor_the_exporter(exported):
    code = f"""
import sys
for name in ("transformers", "torchao", "datasets", "onnx"):
    sys.modules[name] = None
import compress
print(compress.open({str(exported[1])!r}).predict(["a good film"])[0]["label"])
assert "executorch.exir" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() in ("bad", "good")


def test_outputs_that_differ_are_an_error(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "TOLERANCE", 0.0)
    with pytest.raises(ModelError, match="differ from those of its source"):
        build("executorch-fp32", exported[0], tmp_path)


def test_a_model_that_cannot_be_traced_is_reported(exported, tmp_path, monkeypatch):
    def refuse(*_):
        raise RuntimeError("data-dependent control flow")

    monkeypatch.setattr(export, "trace", refuse)
    with pytest.raises(ModelError, match="ExecuTorch cannot convert a bert model like this: data-dependent"):
        build("executorch-fp32", exported[0], tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_the_library_the_extra_is_named(exported, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "executorch.backends.xnnpack.partition.xnnpack_partitioner", None)
    with pytest.raises(MissingExtra, match="executorch is needed") as raised:
        build("executorch-fp32", exported[0], tmp_path)
    assert "compress-encoders[executorch]" in raised.value.hint
