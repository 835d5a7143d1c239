"""The C++ runner, built as its README says, repeats PyTorch's outputs on the golden inputs."""

import os
import shutil
import subprocess
from pathlib import Path

import onnx
import onnxruntime
import pytest

from compress.export.comparison.parity_check import LIMITS
from tests.variant_builder import add_to_logits, build

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).resolve().parents[2] / "deploy" / "cpp" / "golden.cpp"
HEADER = "onnxruntime_cxx_api.h"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """golden.cpp, compiled against the library of Python's wheel."""
    folders = (os.environ.get("ONNXRUNTIME_INCLUDE", "/usr/include/onnxruntime"), "/usr/include/onnxruntime")
    headers = next((folder for folder in folders if (Path(folder) / HEADER).is_file()), None)
    if headers is None:
        pytest.skip(
            f"{HEADER} is not installed; deploy/cpp/README.md says how, and ONNXRUNTIME_INCLUDE names its folder"
        )
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    libraries = sorted((Path(onnxruntime.__path__[0]) / "capi").glob("libonnxruntime.so.*"))
    if not libraries:
        pytest.skip("this build of onnxruntime has no shared library")
    work = tmp_path_factory.mktemp("cpp")
    (work / "libonnxruntime.so.1").symlink_to(libraries[0])
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", SOURCE, "-I", headers]
    command += [work / "libonnxruntime.so.1", f"-Wl,-rpath,{work}", "-o", work / "golden"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return work / "golden"


@pytest.fixture(scope="module")
def exports(tiny_folder, tmp_path_factory):
    work = tmp_path_factory.mktemp("exports")
    for name, source in (("onnx-fp32", tiny_folder("bert")), ("onnx-int8", work / "onnx-fp32")):
        (work / name).mkdir()
        build(name, source, work / name)
    return work


def run(program, model, golden, precision="fp32"):
    command = [program, model, golden, str(LIMITS[precision].difference)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_it_repeats_the_outputs_of_pytorch(precision, program, exports):
    folder = exports / f"onnx-{precision}"
    done = run(program, folder / "model.onnx", folder / "golden.safetensors", precision)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {line.partition(":")[0] for line in done.stdout.splitlines()} >= {"sentences", "short", "unusual_characters"}


def test_wrong_outputs_and_damaged_files_are_found(program, exports, tmp_path):
    folder = exports / "onnx-fp32"
    onnx.save(add_to_logits(onnx.load(folder / "model.onnx"), 0.1), tmp_path / "wrong.onnx")
    assert run(program, tmp_path / "wrong.onnx", folder / "golden.safetensors").returncode == 1
    (tmp_path / "golden.safetensors").write_bytes((folder / "golden.safetensors").read_bytes()[:-8])
    damaged = run(program, folder / "model.onnx", tmp_path / "golden.safetensors")
    assert damaged.returncode == 2
    assert "ends too early" in damaged.stderr
