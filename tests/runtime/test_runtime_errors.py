"""Errors of runtimes as errors of compress."""

import subprocess
import sys

import numpy as np
import pytest

from compress.errors import ModelError, OutOfMemory
from compress.runtime import RUN_MODES, open_predictor
from compress.runtime.runtime_errors import is_memory, load_failure, run_failure

ARRAYS = {"input_ids": np.zeros((4096, 512), dtype=np.int64)}


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("std::bad_alloc"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("Failed to allocate memory for requested buffer of size 12884901888"),
        RuntimeError("Unable to allocate 12. GiB for an array"),
    ],
)
def test_too_little_memory_is_reported_as_such(error):
    assert is_memory(error)
    failure = run_failure("PyTorch", "torch-fp32", ARRAYS, error)
    assert isinstance(failure, OutOfMemory)
    assert failure.message == "a batch of 4096 rows of 512 tokens does not fit in memory."
    assert load_failure("PyTorch", "x", error).message == "x does not fit in memory."


def test_other_errors_are_reported_with_their_first_line():
    failure = run_failure("PyTorch", "torch-fp32", ARRAYS, RuntimeError("\n  index out of range\nand much more"))
    assert type(failure) is ModelError
    assert failure.message == "PyTorch cannot run torch-fp32 on input_ids (4096, 512): index out of range"
    assert load_failure("PyTorch", "x", RuntimeError()).message == "PyTorch cannot read x: RuntimeError"


def test_a_text_longer_than_the_model_is_reported(tiny_folder):
    predictor = open_predictor(tiny_folder("bert"))
    long = {name: np.ones((1, 100), dtype=np.int64) for name in predictor.inputs}
    with pytest.raises(ModelError, match=r"PyTorch cannot run torch-fp32 on input_ids \(1, 100\)"):
        predictor.predict(long)


LIMIT = """
import re, resource
from pathlib import Path

def allow(memory):
    used = int(re.search(r"VmData:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (used + memory, used + memory))
"""
"""Limits a process to some memory more than it uses, as torch alone takes 0.2 GiB in one build and 0.7 in another."""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by a Linux call")
@pytest.mark.parametrize("way", ["onnxruntime", "openvino"])
def test_a_batch_that_does_not_fit_ends_in_one_message(tmp_path, write_wide, way):
    path = write_wide(tmp_path / "wide.onnx")
    code = f"""{LIMIT}
import numpy as np
from compress.errors import OutOfMemory
from compress.runtime import RUN_MODES, open_predictor
predictor = open_predictor(Path({str(path)!r}), variant=RUN_MODES[{way!r}])
small = {{name: np.ones((1, 4), dtype=np.int64) for name in predictor.inputs}}
predictor.predict(small)
allow(2 << 30)
try:
    predictor.predict({{name: np.ones((4096, 512), dtype=np.int64) for name in predictor.inputs}})
except OutOfMemory as error:
    print(error.message)
print(predictor.predict(small)["logits"].shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["a batch of 4096 rows of 512 tokens does not fit in memory.", "(1, 4, 512)"]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by a Linux call")
def test_a_batch_that_does_not_fit_in_torch_ends_in_one_message(tiny_folder):
    code = f"""{LIMIT}
import numpy as np
from compress.errors import OutOfMemory
from compress.runtime import open_predictor
predictor = open_predictor(Path({str(tiny_folder("bert"))!r}))
allow(1 << 29)
try:
    predictor.predict({{name: np.ones((100_000, 64), dtype=np.int64) for name in predictor.inputs}})
except OutOfMemory as error:
    print(error.message)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "a batch of 100000 rows of 64 tokens does not fit in memory."


@pytest.mark.parametrize("way", ["onnxruntime", "openvino"])
def test_a_file_that_is_cut_off_is_reported_without_codes(tmp_path, write_wide, way):
    path = write_wide(tmp_path / "wide.onnx")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ModelError, match=r"cannot read .*wide\.onnx: it is empty, truncated, or not a model\.$"):
        open_predictor(path, variant=RUN_MODES[way])


def test_a_graph_of_a_folder_that_is_empty(tmp_path):
    (tmp_path / "model.onnx").touch()
    with pytest.raises(ModelError, match=r"model\.onnx: it is empty, truncated"):
        open_predictor(tmp_path)


def test_codes_and_the_second_name_are_left_out():
    error = RuntimeError("[ONNXRuntimeError] : 1 : FAIL : Load model from a b.onnx failed:no such operator")
    assert (
        load_failure("ONNX Runtime", "a b.onnx", error).message == "ONNX Runtime cannot read a b.onnx: no such operator"
    )
