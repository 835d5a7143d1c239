"""Everything that compress leaves can be read by whom the umask lets read it, although scratch folders are private."""

import os

import pytest

import compress
from compress.cli import main
from compress.make_variant import export_from_model
from compress.models import load, load_tokenizer
from compress.publish.pull import pull
from compress.quantize import quantize_folder


@pytest.fixture(autouse=True)
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder):
    """The modes of files and folders in ``folder``, itself included."""
    paths = [path for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    return {(path.is_dir(), oct(path.stat().st_mode & 0o777)) for path in paths}


OPEN = {(True, "0o755"), (False, "0o644")}


@pytest.mark.slow
def test_exports_and_quantized_folders(tiny_folder, tiny_model, tiny_tokenizer, tiny_task, tmp_path):
    source = tiny_folder("bert")
    assert modes(source) - {(True, "0o700")} == {(False, "0o644")}  # pytest's own folder keeps its mode
    assert main(["export", str(source), str(tmp_path / "onnx"), "--format", "onnx"]) == 0
    assert modes(tmp_path / "onnx") == OPEN
    assert main(["export", str(source), str(tmp_path / "both"), "--format", "onnx", "--format", "ort"]) == 0
    assert modes(tmp_path / "both") == OPEN
    assert modes(quantize_folder(tmp_path / "onnx", tmp_path / "int8")) == OPEN
    export_from_model(tiny_model("bert"), tiny_tokenizer, tmp_path / "memory", task=tiny_task)
    assert modes(tmp_path / "memory") == OPEN
    assert compress.open(tmp_path / "int8").predict(["a good film"])


@pytest.mark.slow
def test_a_private_folder_that_is_written_into_stays_private(tiny_folder, tmp_path):
    (tmp_path / "mine").mkdir(mode=0o700)
    export_from_model(load(tiny_folder("bert")), load_tokenizer(tiny_folder("bert")), tmp_path / "mine")
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_a_run_its_zoo_and_what_is_pulled(recipe_file, tmp_path):
    runs = tmp_path / "runs"
    assert main(["run", str(recipe_file), "--runs", str(runs), "--format", "quiet"]) == 0
    for folder in (runs / "tiny", runs / ".steps", tmp_path / "zoo"):
        assert modes(folder) <= OPEN, folder
    assert modes(pull(tmp_path / "zoo" / "tiny", tmp_path / "pulled")) == OPEN
