"""A worker process as its session sees it: send requests, receive replies, detect timeouts and exits."""

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
from types import TracebackType

from pydantic import ValidationError

from compress.measure.result_base import ResultModel
from compress.measure.timing.worker_protocol import Reply

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


class WorkerLost(Exception):
    """A worker failed, exited or stopped responding; the message says how."""


class WorkerExited(WorkerLost):
    """A worker's process exited or was killed."""


class Unsupported(Exception):
    """A worker's runtime or device is not on this machine, or a library is missing."""


class WorkerProcess:
    """Starts a worker on entry and ends it on exit."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._messages: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.launched = 0.0
        """When the process was started, in seconds since 1970."""

    def __enter__(self) -> WorkerProcess:
        """Start the process."""
        self.launched = time.time()
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "compress.measure.timing.worker"],
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process if it is running: at once after an error (Ctrl-C included)."""
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            return
        if kind is not None:
            self._process.kill()
        self.close_stdin()
        try:
            self._process.wait(EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._writer.join(EXIT_TIMEOUT)  # a child of the process may still hold the pipe
        self._reader.join()
        self._process.stdout.close()
        self._errors.close()

    def close_stdin(self) -> None:
        """Let the process exit by itself, without waiting for it."""
        self._messages.put(None)

    def request(self, message: ResultModel, timeout: float) -> Reply:
        """Send a message and return the reply, which may take ``timeout`` seconds."""
        self.send(message)
        return self.receive(timeout)

    def send(self, message: ResultModel) -> None:
        """Send a message without waiting; its reply must be received before the next one is sent."""
        self._messages.put(message.model_dump_json() + "\n")

    def receive(self, timeout: float) -> Reply:
        """Return the reply, which may take ``timeout`` seconds."""
        try:
            line = self._replies.get(timeout=timeout)
        except queue.Empty:
            self._process.kill()
            raise WorkerLost(f"no reply within {timeout:.0f} s") from None
        if not line:
            self._replies.put("")  # the next call gets the same result
            raise WorkerExited(self._describe_exit())
        return _parse_reply(line)

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
        try:
            code = self._process.wait(EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            return "the process closed its output and did not exit"
        self._errors.seek(0)
        return describe_exit(code, self._errors.read())


def worker_environment(threads: int) -> dict[str, str]:
    """Return this process's environment with fixed threads and a random length, without a launch's variables."""
    inherited = {name: value for name, value in os.environ.items() if name not in LAUNCH_VARIABLES}
    fixed = dict.fromkeys(THREAD_VARIABLES, str(threads)) | {"TOKENIZERS_PARALLELISM": "false"} | UTF8
    return inherited | fixed | {PADDING: "x" * random.randrange(MAX_PADDING)}


def describe_exit(code: int, stderr: str) -> str:
    """Return how a process ended, with its error message."""
    if code < 0:
        hint = ", as happens when memory runs out" if -code == signal.SIGKILL else ""
        return f"the process was killed by {signal.Signals(-code).name}{hint}"
    message = error_line(stderr)
    return f"the process ended with exit code {code}" + (f": {message}" if message else "")


def error_line(stderr: str) -> str:
    """Return the line that names the exception of the last traceback, or else the last line."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    starts = [index for index, line in enumerate(lines) if line.startswith("Traceback ")]
    after = lines[starts[-1] + 1 :] if starts else []
    return next((line for line in after if not line[0].isspace()), lines[-1].strip() if lines else "")


def _parse_reply(line: str) -> Reply:
    try:
        reply = Reply.model_validate_json(line)
    except ValidationError as error:
        raise WorkerLost(f"the process sent an invalid reply: {line[:80]!r}") from error
    if reply.unsupported:
        raise Unsupported(reply.unsupported)
    if reply.failed:
        raise WorkerLost(reply.failed)
    return reply
