"""A worker process as its session sees it: asked, answered, timed out, or lost with a reason."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from types import TracebackType

from pydantic import ValidationError

from compress.measure.facts import Facts
from compress.measure.messages import Reply

LAUNCH_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
"""A worker is no member of a distributed launch."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
ENDING_PATIENCE = 5.0


class Lost(Exception):
    """A worker failed, ended or fell silent; the message says how."""


class Refused(Exception):
    """A worker's runtime or device is not on this machine."""


class Link:
    """Starts a worker on entry and leaves none behind on exit."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._replies: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> Link:
        """Start the process."""
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "compress.measure.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            env=worker_environment(self._threads),
        )
        # A thread reads, so that waiting can end: pipes know no timeout on every system.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process, if it has not ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(ENDING_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        self._errors.close()

    def ask(self, message: Facts, patience: float) -> Reply:
        """Send a message and wait for the reply, ``patience`` seconds at most."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(message.model_dump_json() + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Lost(self._last_words()) from None
        try:
            line = self._replies.get(timeout=patience)
        except queue.Empty:
            self._process.kill()
            raise Lost(f"no answer within {patience:.0f} s") from None
        if not line:
            raise Lost(self._last_words())
        return _understood(line)

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
    """This process's environment with the threads fixed, without a launch's variables."""
    kept = {name: value for name, value in os.environ.items() if name not in LAUNCH_VARIABLES}
    return kept | dict.fromkeys(THREAD_VARIABLES, str(threads)) | {"TOKENIZERS_PARALLELISM": "false"}


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
        raise Lost(f"the process answered what cannot be read: {line[:80]!r}") from error
    if reply.refused:
        raise Refused(reply.refused)
    if reply.failed:
        raise Lost(reply.failed)
    return reply
