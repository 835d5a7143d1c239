"""`compress verify` on exports with golden inputs: repeated, different, without their runtime, and unpublished."""

import json
import sys

import pytest

from compress.cli import main
from compress.export.comparison.golden_inputs import GOLDEN_FILE, golden_batches, write_golden
from compress.model_folder.model_info import read_info
from compress.publish.verify import DIGESTS_FILE
from compress.runtime import open_predictor
from tests.measure.conftest import write_variant
from tests.without_torch import light


class Shifted:
    """A model whose outputs differ from another's."""

    def __init__(self, predictor, shift):
        self.predictor, self.shift, self.inputs = predictor, shift, predictor.inputs

    def predict(self, batch):
        return {name: values + self.shift for name, values in self.predictor.predict(batch).items()}

    def describe(self):
        return {"runtime": "torch", "version": "2", "precision": "fp32"}


@pytest.fixture
def exported(tmp_path):
    """An ONNX classifier with golden outputs; ``exported(1.0)`` has others."""

    def make(shift=0.0):
        folder = write_variant(tmp_path / "model", 8)
        reference = Shifted(open_predictor(folder), shift)
        write_golden(folder, golden_batches(folder, read_info(folder).task), reference)
        return folder

    return make


def test_an_export_that_was_not_published_is_compared_with_pytorch(exported, capsys):
    folder = exported()
    assert main(["verify", str(folder)]) == 0
    shown = capsys.readouterr()
    assert "repeats PyTorch: outputs within" in shown.out
    assert f"has no {DIGESTS_FILE}, because it was not published" in shown.err
    assert main(["verify", str(folder), "--format", "json"]) == 0
    (golden,) = json.loads(capsys.readouterr().out)["golden"]
    assert golden["not_run"] is None
    assert golden["misses"] == []
    assert golden["parity"]["max_abs_difference"] < 1e-4  # rows alone are compared with the outputs of their batch


def test_other_outputs_end_with_the_exit_code_of_parity(exported, capsys):
    assert main(["verify", str(exported(1.0))]) == 3
    assert "does not repeat PyTorch: outputs differ by up to 1; allowed is" in capsys.readouterr().err


def test_without_its_runtime_a_line_says_why_nothing_was_run(exported, capsys, monkeypatch):
    folder = exported()
    content = json.loads((folder / "compress.json").read_text())
    content["variant"] |= {"format": "litert", "runtime": "litert", "name": "litert-fp32"}
    (folder / "compress.json").write_text(json.dumps(content))
    (folder / "model.onnx").rename(folder / "model.tflite")
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    assert main(["verify", str(folder)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "its golden inputs were not run, because" in line
    assert "compress-encoders[litert-runtime]" in line


def test_a_golden_file_without_inputs_is_one_message(exported, capsys):
    folder = exported()
    (folder / GOLDEN_FILE).write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    assert main(["verify", str(folder)]) == 1
    assert "holds no inputs" in capsys.readouterr().err


def test_it_needs_no_torch(exported):
    done = light("verify", str(exported()))
    assert done.returncode == 0, done.stderr
    assert "repeats PyTorch" in done.stdout
