"""What stands between a session and its workers: pipes, locales, and workers that do not read."""

import signal
import subprocess
import sys

import pytest

from compress.measure import Job
from compress.measure.timing.worker_process import WorkerLost, WorkerProcess, worker_environment
from compress.measure.timing.worker_protocol import Failure, Reply, WorkerSpec
from compress.runtime import RUN_MODES
from compress.runtime.predictor import Placement

WORKER = "compress.measure.timing.worker", Reply, 1
"""A worker with one thread."""


def spec(folder, variant=None, calls=()) -> WorkerSpec:
    return WorkerSpec(job=Job("a", folder, variant, Placement(), length=4), calls=calls, seed=0, launched=0.0)


def test_missing_library_is_named_with_its_extra(small):
    without = "import sys; sys.modules['openvino'] = None; from compress.measure.timing.worker import main; main()"
    request_spec = spec(small / "model.onnx", variant=RUN_MODES["openvino"])
    result = subprocess.run(
        [sys.executable, "-c", without],
        input=request_spec.model_dump_json() + "\n",
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    unsupported = Failure.model_validate_json(result.stdout).unsupported
    assert "openvino is needed here and is not installed. (pip install 'compress-encoders[openvino]')" in unsupported


def test_worker_messages_are_utf_8_in_any_locale(monkeypatch):
    for name, value in {"LC_ALL": "POSIX", "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.stderr.write(sys.stdin.read()); print(sys.flags.utf8_mode)"],
        input="\u00e4 \u4f60",
        capture_output=True,
        check=True,
        encoding="utf-8",
        env=worker_environment(threads=1),
    )
    assert (done.stderr, done.stdout) == ("\u00e4 \u4f60", "1\n")


@pytest.mark.skipif(sys.platform == "win32", reason="a script stands in for the interpreter")
def test_worker_that_never_reads_times_out(small, tmp_path, monkeypatch):
    deaf = tmp_path / "deaf"
    deaf.write_text("#!/bin/sh\nexec sleep 60\n")
    deaf.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(deaf))
    with WorkerProcess(*WORKER) as link:
        much = spec(small, calls=(("x" * 1_000_000,),))  # a pipe holds 64 KiB
        for _ in range(2):  # and no earlier: sending does not wait
            link.send(much)
        with pytest.raises(WorkerLost, match="no reply within 0 s"):
            link.receive(0.2)
    assert link._process.returncode == -signal.SIGKILL


def test_exited_worker_stays_exited(small):
    with WorkerProcess(*WORKER) as link:
        link._process.kill()
        for _ in range(2):
            with pytest.raises(WorkerLost, match="SIGKILL"):
                link.request(spec(small), 60)
