"""Errors of runtimes as errors of compress."""

import subprocess
import sys

import numpy as np
import pytest

from compress.errors import ModelError, OutOfMemory
from compress.runtime import RUN_MODES, open_predictor
from compress.runtime.predictor import is_memory, load_failure, run_failure, run_rows

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


@pytest.mark.slow
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


IDS = np.array([[5, 6, 0, 0], [7, 8, 9, 0], [0, 0, 0, 0]])
BATCH = {"input_ids": IDS, "attention_mask": (IDS > 0).astype(int), "labels": np.zeros(3)}
INPUTS = ("input_ids", "attention_mask")


def run(*, name, give, length=lambda tokens: tokens):
    seen = []

    def model(row):
        seen.append(row)
        return {name: give(row["input_ids"])}

    return run_rows(INPUTS, BATCH, length, model)[name], seen


def test_each_row_runs_without_its_padding():
    logits, seen = run(name="logits", give=lambda ids: ids.sum(axis=1, keepdims=True).astype(np.float32))
    assert [row["input_ids"].tolist() for row in seen] == [[[5, 6]], [[7, 8, 9]], [[0]]]
    assert [set(row) for row in seen] == [set(INPUTS)] * 3
    assert logits.tolist() == [[11], [24], [0]]


def test_rows_are_padded_to_the_length_that_the_model_reads():
    _, seen = run(name="logits", give=lambda ids: ids[:, :1].astype(np.float32), length=lambda tokens: 4)
    assert [row["input_ids"].tolist() for row in seen] == [[[5, 6, 0, 0]], [[7, 8, 9, 0]], [[0, 0, 0, 0]]]
    assert seen[0]["attention_mask"].tolist() == [[1, 1, 0, 0]]


@pytest.mark.parametrize("length", [lambda tokens: tokens, lambda tokens: 8])
def test_outputs_per_token_are_as_long_as_the_batch(length):
    starts, _ = run(name="start_logits", give=lambda ids: ids.astype(np.float32), length=length)
    assert starts.tolist() == IDS.tolist()
    logits, _ = run(name="logits", give=lambda ids: ids[:, :, None].astype(np.float32), length=length)
    assert logits.shape == (3, 4, 1)


def test_a_gap_in_the_mask_is_no_end():
    seen = []
    arrays = {"input_ids": np.array([[5, 6, 7, 0]]), "attention_mask": np.array([[1, 0, 1, 0]])}
    run_rows(INPUTS, arrays, lambda tokens: tokens, lambda row: seen.append(row) or {"logits": np.zeros((1, 1))})
    assert seen[0]["attention_mask"].tolist() == [[1, 0, 1]]


def test_a_missing_input_is_named():
    with pytest.raises(ModelError, match="attention_mask was not given"):
        run_rows(INPUTS, {"input_ids": IDS}, lambda tokens: tokens, lambda row: row)


@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (2, 3, 4)])
def test_arrays_of_other_shapes_are_refused(shape):
    arrays = dict.fromkeys(INPUTS, np.ones(shape, np.int64))
    with pytest.raises(ModelError, match=r"takes arrays of \(rows, tokens\), all of one shape and not empty; got"):
        run_rows(INPUTS, arrays, lambda tokens: tokens, lambda row: row)
