import pytest

from compress.measure.resources.serving_memory import ServingMemory, serving_memory
from compress.measure.timing.worker_process import WorkerLost, run_in_subprocess
from compress.measure.timing.worker_protocol import Task

HERE = (
    "from compress.measure.timing.worker_protocol import Task, serve_task\n"
    "from compress.measure.resources.serving_memory import ServingMemory\n"
)
MEBI = 2**20


def test_serving_one_by_one_and_in_batches(wide):
    one, many = serving_memory(wide, None, "cpu", (1, 256), length=32)
    assert (one.batch, many.batch, one.length) == (1, 256, 32)
    assert one.reason is None
    assert 20 * MEBI < one.resident <= one.peak
    assert many.peak > one.peak + 8 * MEBI  # the word vectors of 256 rows alone take 16 MiB
    assert one.device is None


def test_too_large_batch_has_a_reason(small):
    [result] = serving_memory(small, None, "cpu", (2**50,), length=128)
    assert result.reason == f"a batch of {2**50} rows of 128 pieces does not fit in memory"
    assert (result.resident, result.peak) == (None, None)


def test_missing_model_has_a_reason(tmp_path):
    [result] = serving_memory(tmp_path, None, "cpu", (1,))
    assert "is a folder without a model" in result.reason
    assert "Traceback" not in result.reason


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that a process of its own can run."""

    def write(text):
        (tmp_path / "odd_worker.py").write_text(HERE + text)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return "odd_worker"

    return write


def ask(name, patience=60.0):
    return run_in_subprocess(name, Task(device="cpu", threads=1), ServingMemory, patience)


def test_printing_process_returns_its_result(module):
    answer = "serve_task(Task, lambda task: print('noise') or [ServingMemory(batch=task.threads)])"
    assert ask(module(answer)) == ServingMemory(batch=1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            "killed by SIGKILL, as happens when memory runs out",
        ),
        ("raise ValueError('odd')", "ValueError: odd"),
        ("raise SystemExit(3)", "ended with exit code 3"),
        ("print('nonsense')", "invalid reply: 'nonsense"),
        ("raise MemoryError", "MemoryError"),
    ],
)
def test_every_exit_has_a_reason(module, text, reason):
    with pytest.raises(WorkerLost, match=reason):
        ask(module(text))


def test_hanging_process_is_killed(module):
    with pytest.raises(WorkerLost, match="no reply within 1 s"):
        ask(module("import time; time.sleep(60)"), 1.0)
