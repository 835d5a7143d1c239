"""A worker process as its session sees it: asked, answered, timed out, or lost with a reason."""

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
"""A worker is no member of a distributed launch."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
SPEECH = {"PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8"}
"""What is said to a worker and what it says is UTF-8, whatever the locale or a variable of the user's says."""
ENDING_PATIENCE = 5.0
PADDING = "COMPRESS_PADDING"
MOST_PADDING = 4096
"""The environment lies below the stack and moves it: its length alone made programs faster or slower (Mytkowicz et al.,
Producing wrong data without doing anything obviously wrong, 2009). So every process gets another, also where the system
does not scatter addresses by itself, and what is left shows as a difference between processes."""


class WorkerLost(Exception):
    """A worker failed, ended or fell silent; the message says how."""


class WorkerExited(WorkerLost):
    """A worker's process ended by itself, or was ended by others."""


class Unsupported(Exception):
    """A worker's runtime or device is not on this machine, or lacks a library."""


class WorkerProcess:
    """Starts a worker on entry and leaves none behind on exit."""

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
        # Threads read and write, so that waiting can end: pipes know no timeout on every system, and one that is full
        # holds up who writes until somebody reads, which a process that hangs while it starts never does.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._reader.start()
        self._writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process, if it has not ended: at once where something went wrong (Ctrl-C among it)."""
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            return
        if kind is not None:
            self._process.kill()
        self.hang_up()
        try:
            self._process.wait(ENDING_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._writer.join(ENDING_PATIENCE)  # what the process itself has started may still hold the pipe
        self._reader.join()
        self._process.stdout.close()
        self._errors.close()

    def hang_up(self) -> None:
        """Let the process end by itself, without waiting for it."""
        self._messages.put(None)

    def ask(self, message: ResultModel, patience: float) -> Reply:
        """Send a message and wait for the reply, ``patience`` seconds at most."""
        self.send(message)
        return self.receive(patience)

    def send(self, message: ResultModel) -> None:
        """Send a message, without waiting for it to be read; its reply must be received before the next one is sent."""
        self._messages.put(message.model_dump_json() + "\n")

    def receive(self, patience: float) -> Reply:
        """Wait for the reply, ``patience`` seconds at most."""
        try:
            line = self._replies.get(timeout=patience)
        except queue.Empty:
            self._process.kill()
            raise WorkerLost(f"no answer within {patience:.0f} s") from None
        if not line:
            self._replies.put("")  # whoever asks again is told the same
            raise WorkerExited(self._last_words())
        return _understood(line)

    def _write(self) -> None:
        """Pass on what is sent until there is no more; a process that has ended is told of where its reply is read."""
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

    def _last_words(self) -> str:
        """How the process ended, and the last thing it said."""
        try:
            code = self._process.wait(ENDING_PATIENCE)
        except subprocess.TimeoutExpired:
            return "the process closed its output and did not end"
        self._errors.seek(0)
        said = last_words(self._errors.read())
        if code < 0:
            name = signal.Signals(-code).name
            often = ", as happens when memory runs out" if -code == signal.SIGKILL else ""
            return f"the process was ended by {name}{often}"
        return f"the process ended with exit code {code}" + (f": {said}" if said else "")


def worker_environment(threads: int) -> dict[str, str]:
    """This process's environment with the threads fixed, of a length of its own, without a launch's variables."""
    kept = {name: value for name, value in os.environ.items() if name not in LAUNCH_VARIABLES}
    fixed = dict.fromkeys(THREAD_VARIABLES, str(threads)) | {"TOKENIZERS_PARALLELISM": "false"} | SPEECH
    return kept | fixed | {PADDING: "x" * random.randrange(MOST_PADDING)}


def last_words(said: str) -> str:
    """The line that names the exception of the last traceback, or the last line."""
    lines = [line for line in said.splitlines() if line.strip()]
    starts = [place for place, line in enumerate(lines) if line.startswith("Traceback ")]
    after = lines[starts[-1] + 1 :] if starts else []
    return next((line for line in after if not line[0].isspace()), lines[-1].strip() if lines else "")


def _understood(line: str) -> Reply:
    try:
        reply = Reply.model_validate_json(line)
    except ValidationError as error:
        raise WorkerLost(f"the process answered what cannot be read: {line[:80]!r}") from error
    if reply.refused:
        raise Unsupported(reply.refused)
    if reply.failed:
        raise WorkerLost(reply.failed)
    return reply
