"""Commands and scripts in processes of their own, forked from one that has imported torch: each begins seconds sooner.

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
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

POLL = 0.002
RUN_COMMAND = "import sys\nfrom compress.cli import main\nsys.argv[0] = 'compress'\nsys.exit(main(sys.argv[1:]))"


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
    def stdout(self) -> str:
        """What it has written there."""
        return (self.folder / "stdout").read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        """What it has written there."""
        return (self.folder / "stderr").read_text(encoding="utf-8")


def start_command(*arguments: str | Path) -> CommandProcess:
    """Start `compress` with these arguments, on one thread, as a process of its own."""
    return start_script(RUN_COMMAND, *arguments)


def start_script(
    script: str | Path,
    *arguments: str | Path,
    folder: Path | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    has_compress: bool = True,
) -> CommandProcess:
    """Start a file or code, in ``folder``, as a process of its own which has imported torch, and compress or not."""
    template, kept = _template(has_compress), Path(tempfile.mkdtemp(dir=_scratch()))
    assert template.stdin is not None
    assert template.stdout is not None
    code = script if isinstance(script, str) else script.read_text(encoding="utf-8")
    # The template has the environment of its first use, and tests change theirs.
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    name = "-c" if isinstance(script, str) else str(script)
    request = [str(kept), str(folder or Path.cwd()), variables, code, name, *map(str, arguments)]
    template.stdin.write(json.dumps(request) + "\n")
    template.stdin.flush()
    return CommandProcess(int(template.stdout.readline()), kept)


def run_command(*arguments: str | Path, timeout: float = 600.0) -> CommandProcess:
    """Run `compress` to its end, which must be a success."""
    process = run_script(RUN_COMMAND, *arguments, timeout=timeout)
    assert process.returncode == 0, process.stderr
    return process


def run_script(script: str | Path, *arguments: str | Path, timeout: float = 600.0, **options: Any) -> CommandProcess:
    """Run a file or code to its end; ``options`` as `start_script` takes them."""
    process = start_script(script, *arguments, **options)
    try:
        process.wait(timeout)
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
def _template(has_compress: bool) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.command_process", *(["compress"] if has_compress else [])]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.kill)
    return process


def _serve(has_compress: bool) -> None:
    import sentence_transformers  # noqa: F401  # and with it torch and transformers

    if has_compress:
        import compress.cli
        import compress.train.distill
        import compress.train.finetune  # noqa: F401

    for line in sys.stdin:
        reading, writing = os.pipe()
        if os.fork() == 0:
            _keep(*json.loads(line), writing=writing)
        os.close(writing)
        with os.fdopen(reading) as answer:
            sys.stdout.write(answer.read() + "\n")
        sys.stdout.flush()


def _keep(kept: str, *request: Any, writing: int) -> None:
    """Fork the script, answer with its number, and write its exit code."""
    pid, folder = os.fork(), Path(kept)
    if pid == 0:
        os.close(writing)
        _become(folder, *request)
    os.write(writing, str(pid).encode())
    os.close(writing)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    (folder / ".status").write_text(str(code))
    (folder / ".status").rename(folder / "status")
    os._exit(0)


def _become(folder: Path, where: str, environment: Mapping[str, str], code: str, name: str, *arguments: str) -> None:
    """Run the script in this process, and end it."""
    for number, path in ((0, os.devnull), (1, folder / "stdout"), (2, folder / "stderr")):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
    os.chdir(where)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [name, *arguments]
    status: Any = 1
    try:
        exec(compile(code, name, "exec"), {"__name__": "__main__", "__file__": name})
        status = 0
    except SystemExit as end:
        status = end.code or 0
        if isinstance(status, str):
            sys.stderr.write(status + "\n")
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    _serve(sys.argv[1:] == ["compress"])
