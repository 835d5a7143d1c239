"""The other tools' commands and answers; their output is shortened from real runs."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.harness import bare_loop, other_tools
from benchmarks.harness.other_tools import Task, ToolFailed

SUMMARY = (
    "Latency(ms)\tLatency_P50\tLatency_P75\tLatency_P90\tLatency_P95\tLatency_P99\tThroughput(QPS)\tmodel\n"
    "58.08\t56.94\t61.68\t64.32\t67.29\t78.41\t17.22\tmodel.onnx\n"
)
STATISTICS = {
    "cmd_options": {"m": "model.onnx"},
    "execution_results": {"total number of iterations": "53", "latency (ms)": "57.01", "avg latency": "56.85"},
}


@pytest.fixture
def task(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "bare").mkdir()
    model = tmp_path / "bare" / "model.onnx"
    model.write_bytes(b"")
    inputs = {name: tmp_path / f"{name}.npy" for name in ("input_ids", "attention_mask")}
    return Task(model, inputs, batch=1, length=128, threads=2, calls=50, work=tmp_path / "work")


def test_the_summary_of_bert_perf_test_is_read():
    assert other_tools.read_bert_summary(SUMMARY) == 56.94


@pytest.mark.parametrize("text", ["", "Latency(ms)\n", "Latency(ms)\n58.08\n"])
def test_a_summary_without_the_median_is_refused(text):
    with pytest.raises(ToolFailed, match="without Latency_P50"):
        other_tools.read_bert_summary(text)


def test_the_summary_is_found_in_the_work_folder(task):
    with pytest.raises(ToolFailed, match="no summary"):
        other_tools.read_bert(task, "")
    (task.work / "perf_results_CPU_B1_S128_20260101-000000.txt").write_text(SUMMARY)
    assert other_tools.read_bert(task, "") == 56.94


def test_the_statistics_of_benchmark_app_are_read(task):
    with pytest.raises(ToolFailed, match="no statistics"):
        other_tools.read_app(task, "")
    (task.work / "benchmark_report.json").write_text(json.dumps(STATISTICS))
    assert other_tools.read_app(task, "") == 57.01


def test_errors_of_benchmark_app_contain_no_paths():
    text = json.dumps({"execution_results": {"error": "cannot open /home/somebody/model.onnx"}})
    with pytest.raises(ToolFailed, match=r"no median: cannot open model\.onnx$"):
        other_tools.read_app_statistics(text)


def test_the_answer_of_the_bare_loop_is_read(task):
    assert other_tools.read_bare(task, '{"milliseconds": 9.5, "calls": 50}\n') == 9.5


@pytest.mark.parametrize(
    "tool", [other_tools.BARE, other_tools.BERT_PERF_TEST, other_tools.APP], ids=lambda tool: tool.name
)
def test_commands_contain_threads_and_calls(tool, task):
    words = tool.command(task)
    assert "2" in words
    assert "50" in words


@pytest.mark.parametrize(
    "tool", [other_tools.BARE, other_tools.BERT_PERF_TEST, other_tools.APP], ids=lambda tool: tool.name
)
def test_displayed_commands_contain_no_paths(tool, task):
    shown = other_tools.displayed_command(tool, task)
    assert shown.startswith("benchmark_app " if tool is other_tools.APP else "python ")
    assert str(task.work.parent) not in shown
    assert sys.prefix not in shown
    assert "model.onnx" in shown
    assert tool is not other_tools.BARE or "bare_loop.py model.onnx 2 50 input_ids=input_ids.npy" in shown


def test_command_of_benchmark_app_contains_shapes_and_precision(task):
    words = other_tools.app_command(task)
    assert words[words.index("-data_shape") + 1] == "input_ids[1,128],attention_mask[1,128]"
    assert words[words.index("-infer_precision") + 1] == "f32"


def script(code):
    return other_tools.Tool("made_up", lambda _: [sys.executable, "-c", code], lambda _, output: float(output), "numpy")


def test_a_tool_is_asked_and_read(task):
    assert other_tools.run_tool(script("print(4.5)"), task) == 4.5


def test_a_tool_that_fails_says_how(task):
    with pytest.raises(ToolFailed, match=r"made_up ended with 1: ValueError: no file model\.onnx$"):
        other_tools.run_tool(script("raise ValueError('no file /home/somebody/model.onnx')"), task)


def test_unparsable_output_is_an_error(task):
    with pytest.raises(ToolFailed, match="cannot be parsed"):
        other_tools.run_tool(script("print('fast')"), task)


def test_a_tool_that_hangs_is_given_up(task, monkeypatch):
    monkeypatch.setattr(other_tools, "PATIENCE", 0.3)
    with pytest.raises(ToolFailed, match="no result"):
        other_tools.run_tool(script("import time; time.sleep(60)"), task)


def test_a_library_that_is_not_there_is_named():
    absent = other_tools.Tool("x", other_tools.bare_command, other_tools.read_bare, "no_such_library_anywhere")
    assert other_tools.missing(absent) == "no_such_library_anywhere is not installed"
    assert other_tools.missing(other_tools.BARE) is None


def test_the_bare_loop_times_a_model(small, tmp_path):
    given = []
    for name in ("input_ids", "attention_mask"):
        np.save(tmp_path / f"{name}.npy", np.ones((1, 8), dtype=np.int64))
        given.append(f"{name}={tmp_path / name}.npy")
    command = [sys.executable, "-P", bare_loop.__file__, str(small), "1", "5", *given]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert result["calls"] == 5
    assert result["milliseconds"] > 0


@pytest.fixture
def small(tmp_path):
    """One table look-up, masked."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    table = numpy_helper.from_array(np.ones((4, 2), dtype=np.int64), "table")
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["gathered"])]
    nodes.append(helper.make_node("Unsqueeze", ["attention_mask", "last"], ["mask"]))
    nodes.append(helper.make_node("Mul", ["gathered", "mask"], ["logits"]))
    last = numpy_helper.from_array(np.array([-1], dtype=np.int64), "last")
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("logits", TensorProto.INT64, ["batch", "length", 2])
    graph = helper.make_graph(nodes, "small", inputs, [output], [table, last])
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds processes to cores here")
def test_children_inherit_the_cores_and_we_get_ours_back():
    before = os.sched_getaffinity(0)
    core = max(before)
    with other_tools.pinned_to((core,)):
        code = "import os; print(sorted(os.sched_getaffinity(0)))"
        output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(output) == [core]
    assert os.sched_getaffinity(0) == before
    with other_tools.pinned_to(None):
        assert os.sched_getaffinity(0) == before
