"""Commands in processes of their own, forked from one that has imported torch: each begins seconds sooner.

The template process forks a keeper for each command, which forks the command, waits for it and writes down how it
ended. The template has no thread, so a fork copies all of it.
"""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

POLL = 0.002


@dataclass
class CommandProcess:
    """A running command, with the part of `subprocess.Popen` that tests use."""

    pid: int
    folder: Path
    """Holds what it writes, and `status` once it has ended."""
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        with suppress(FileNotFoundError):
            self.returncode = int((self.folder / "status").read_text())
        return self.returncode

    def wait(self, timeout: float = 600.0) -> int:
        """Return its exit code once it has ended."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(POLL)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        with suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)

    @property
    def stderr(self) -> str:
        """What it has written there."""
        return (self.folder / "stderr").read_text(encoding="utf-8")


def start_command(*arguments: str | Path) -> CommandProcess:
    """Start `compress` with these arguments, on one thread, as a process of its own."""
    template, folder = _template(), Path(tempfile.mkdtemp(dir=_scratch()))
    assert template.stdin is not None
    assert template.stdout is not None
    template.stdin.write(json.dumps([str(folder), *map(str, arguments)]) + "\n")
    template.stdin.flush()
    return CommandProcess(int(template.stdout.readline()), folder)


def run_command(*arguments: str | Path, timeout: float = 600.0) -> CommandProcess:
    """Run `compress` to its end, which must be a success."""
    process = start_command(*arguments)
    try:
        assert process.wait(timeout) == 0, process.stderr
    finally:
        process.kill()
    return process


@cache
def _scratch() -> str:
    """The folder of all commands' outputs, which goes with this process."""
    folder = tempfile.mkdtemp(prefix="compress-commands-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _template() -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.command_process"]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.kill)
    return process


def _serve() -> None:
    import sentence_transformers  # noqa: F401  # and with it torch and transformers

    import compress.cli
    import compress.train.distill
    import compress.train.finetune  # noqa: F401

    for line in sys.stdin:
        folder, *arguments = json.loads(line)
        reading, writing = os.pipe()
        if os.fork() == 0:
            _keep(Path(folder), arguments, writing)
        os.close(writing)
        with os.fdopen(reading) as answer:
            sys.stdout.write(answer.read() + "\n")
        sys.stdout.flush()


def _keep(folder: Path, arguments: Sequence[str], writing: int) -> None:
    """Fork the command, answer with its number, and write its exit code."""
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        _become(folder, arguments)
    os.write(writing, str(pid).encode())
    os.close(writing)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    (folder / ".status").write_text(str(code))
    (folder / ".status").rename(folder / "status")
    os._exit(0)


def _become(folder: Path, arguments: Sequence[str]) -> None:
    """Run the command in this process, and end it."""
    for number, name in ((0, os.devnull), (1, folder / "stdout"), (2, folder / "stderr")):
        opened = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
    sys.argv = ["compress", *arguments]
    code = 1
    try:
        from compress.cli import main

        code = main(list(arguments))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
