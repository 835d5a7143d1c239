"""A subprocess as the process that started it sees it: send messages, receive replies, detect timeouts and exits."""

from __future__ import annotations

import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from compress.measure.result_base import ResultModel
from compress.measure.timing.worker_protocol import Failure, Task

LAUNCH_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
"""A worker does not take part in a distributed launch."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
UTF8 = {"PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8"}
"""Messages to and from a worker are UTF-8, whatever the locale or the user's variables."""
EXIT_TIMEOUT = 5.0
PADDING = "COMPRESS_PADDING"
MAX_PADDING = 4096
"""The environment lies below the stack and moves it: its length alone made programs faster or slower (Mytkowicz et al.,
Producing wrong data without doing anything obviously wrong, 2009). So every process gets another length, also where the
system does not randomise addresses itself, and the effect shows as a difference between processes."""

AnyReply = TypeVar("AnyReply", bound=ResultModel)


class WorkerLost(Exception):
    """A subprocess failed, exited or stopped responding; the message says how."""


class WorkerExited(WorkerLost):
    """A subprocess exited or was killed."""


class WorkerHung(WorkerLost):
    """A subprocess did not reply in time, and was ended."""


class Unsupported(WorkerLost):
    """A worker's runtime or device is not on this machine, or a library is missing."""


class WorkerProcess(Generic[AnyReply]):
    """Starts a subprocess on entry and ends it on exit."""

    def __init__(self, module: str, reply: type[AnyReply], threads: int) -> None:
        """Run a module that calls `serve` with these threads; ``reply`` is the type of its replies."""
        self._module, self._reply, self._threads = module, reply, threads
        self._messages: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.launched = 0.0
        """When the process was started, in seconds since 1970."""

    def __enter__(self) -> WorkerProcess[AnyReply]:
        """Start the process."""
        self.launched = time.time()
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            env=worker_environment(self._threads),
        )
        # Threads read and write, so that waiting can time out: pipes have no timeout on every system, and a full one
        # blocks the writer until it is read, which a process that hangs while it starts never does.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._reader.start()
        self._writer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the process if it is running: at once after an error (Ctrl-C included)."""
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            return
        if kind is not None:
            self.kill()
        self.close_stdin()
        try:
            self._process.wait(EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self._writer.join(EXIT_TIMEOUT)  # a child of the process may still hold the pipe
        self._reader.join()
        self._process.stdout.close()
        self._errors.close()

    def kill(self) -> None:
        """End the process at once; another thread may be waiting for its reply."""
        self._process.kill()

    def close_stdin(self) -> None:
        """Let the process exit by itself, without waiting for it."""
        self._messages.put(None)

    def request(self, message: ResultModel, timeout: float) -> AnyReply:
        """Send a message and return the reply, which may take ``timeout`` seconds."""
        self.send(message)
        return self.receive(timeout)

    def send(self, message: ResultModel) -> None:
        """Send a message without waiting; its reply must be received before the next one is sent."""
        self._messages.put(message.model_dump_json() + "\n")

    def receive(self, timeout: float) -> AnyReply:
        """Return the reply, which may take ``timeout`` seconds."""
        try:
            line = self._replies.get(timeout=timeout)
        except queue.Empty:
            self.kill()
            raise WorkerHung(f"no reply within {timeout:.0f} s") from None
        if not line:
            self._replies.put("")  # the next call gets the same result
            raise WorkerExited(self._describe_exit())
        try:
            failure = Failure.model_validate_json(line)
            if failure.unsupported:
                raise Unsupported(failure.unsupported)
            if failure.failed:
                raise WorkerLost(failure.failed)
            return self._reply.model_validate_json(line)
        except ValidationError as error:
            raise WorkerLost(f"the process sent an invalid reply: {line[:80]!r}") from error

    def _write(self) -> None:
        """Write messages until there are no more; an exited process is noticed when its reply is read."""
        assert self._process.stdin is not None
        with suppress(OSError), self._process.stdin:
            while (message := self._messages.get()) is not None:
                self._process.stdin.write(message)
                self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._replies.put(line)
        self._replies.put("")

    def _describe_exit(self) -> str:
        """Return how the process ended, with its error message."""
        try:
            code = self._process.wait(EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            return "the process closed its output and did not exit"
        if code < 0:
            hint = ", as happens when memory runs out" if -code == signal.SIGKILL else ""
            return f"the process was killed by {signal.Signals(-code).name}{hint}"
        self._errors.seek(0)
        message = error_line(self._errors.read())
        return f"the process ended with exit code {code}" + (f": {message}" if message else "")


class RunningProcesses:
    """Processes that several threads wait for, so that another can end them all: Ctrl-C reaches only one thread."""

    def __init__(self) -> None:
        self._processes: list[WorkerProcess[Any]] = []
        self._ended = False

    def add(self, process: WorkerProcess[Any]) -> None:
        """Add a process; it is killed at once if `end` was called before."""
        self._processes.append(process)
        if self._ended:
            process.kill()

    def end(self) -> None:
        """Kill all of them, and those that are added later."""
        self._ended = True
        for process in list(self._processes):
            process.kill()


def run_in_subprocess(module: str, task: Task, result: type[AnyReply], timeout: float) -> AnyReply:
    """Run ``python -m module`` on ``task`` and return its result; raise `WorkerLost` if there is none.

    Args:
        module: one that calls `serve_task` when it is run.
        task: what it gets.
        result: the type of what it sends.
        timeout: seconds after which it is killed.
    """
    with WorkerProcess(module, result, task.threads) as process:
        return process.request(task, timeout)


def worker_environment(threads: int) -> dict[str, str]:
    """Return this process's environment with fixed threads and a random length, without a launch's variables."""
    inherited = {name: value for name, value in os.environ.items() if name not in LAUNCH_VARIABLES}
    fixed = dict.fromkeys(THREAD_VARIABLES, str(threads)) | {"TOKENIZERS_PARALLELISM": "false"} | UTF8
    return inherited | fixed | {PADDING: "x" * random.randrange(MAX_PADDING)}


def error_line(stderr: str) -> str:
    """Return the line that names the exception of the last traceback, or else the last line."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    starts = [index for index, line in enumerate(lines) if line.startswith("Traceback ")]
    after = lines[starts[-1] + 1 :] if starts else []
    return next((line for line in after if not line[0].isspace()), lines[-1].strip() if lines else "")
