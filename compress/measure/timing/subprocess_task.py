"""A function's work in a process of its own: one JSON object in, one out, whatever becomes of the process in between.

What is measured here (limits, memory) must not meet what this process has loaded or set. The process is held to its
cores and threads, gives way first when memory runs out, and ends with the one that asked.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from threading import Lock
from typing import Literal, TypeVar

from pydantic import ValidationError

from compress.errors import CompressError, OutOfMemory
from compress.measure.result_base import ResultModel
from compress.measure.timing.cpu_affinity import cores_for
from compress.measure.timing.process_limits import ignore_sigint, limit_memory, memory_to_use
from compress.measure.timing.worker_process import last_words, worker_environment

OUT_OF_MEMORY = "it does not fit in memory"


class Task(ResultModel):
    """A question with the place where it is to be answered."""

    device: Literal["cpu", "cuda"]
    threads: int


Question = TypeVar("Question", bound=Task)
Answer = TypeVar("Answer", bound=ResultModel)


class SubprocessFailed(Exception):
    """The process gave no answer; the message says why, for people."""


class RunningProcesses:
    """Processes that several threads wait for, so that another can end them all: Ctrl-C reaches one thread alone."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._processes: list[subprocess.Popen[str]] = []
        self._over = False

    def add(self, process: subprocess.Popen[str]) -> None:
        """Take in a process; one that comes too late is ended at once."""
        with self._lock:
            self._processes.append(process)
            if self._over:
                process.kill()

    def end(self) -> None:
        """End all of them, and those still to come."""
        with self._lock:
            self._over = True
            for process in self._processes:
                process.kill()


def run_in_subprocess(
    module: str, question: Task, answer: type[Answer], patience: float, running: RunningProcesses | None = None
) -> Answer:
    """Run ``python -m module`` on ``question`` and read its answer; `SubprocessFailed` where none comes.

    Args:
        module: one that calls `serve_subprocess` when it is run.
        question: goes to its stdin.
        answer: what is expected on its stdout.
        patience: seconds after which it is ended.
        running: is told of the process, so that it can be ended from another thread.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env=worker_environment(question.threads),
    )
    with process:
        try:
            (running or RunningProcesses()).add(process)
            told, said = process.communicate(question.model_dump_json(), timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            raise SubprocessFailed(f"no answer within {patience:.0f} s") from None
        except BaseException:
            process.kill()  # or leaving would wait for it
            raise
    if process.returncode != 0:
        raise SubprocessFailed(_ending(process.returncode, said).removesuffix("."))
    try:
        return answer.model_validate_json(told)
    except ValidationError as error:
        raise SubprocessFailed(f"the process answered what cannot be read: {told[:80]!r}") from error


def serve_subprocess(question: type[Question], work: Callable[[Question], ResultModel]) -> None:
    """What the process itself does: read, settle on its cores, work, answer; a foreseen failure goes to stderr."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print goes to stderr
    ignore_sigint()
    asked = question.model_validate_json(sys.stdin.read())
    if asked.device == "cpu":  # a CUDA driver reserves more addresses than there is memory, and has threads of its own
        pin_and_limit(asked.threads)
    try:
        found = work(asked)
    except (MemoryError, OutOfMemory):
        _give_up(OUT_OF_MEMORY)
    except CompressError as error:
        _give_up(error.full_message)
    replies.write(found.model_dump_json())
    replies.close()


def pin_and_limit(threads: int) -> None:
    """Hold this process to its cores, and to the memory that is there for it; on Linux, which alone lets it."""
    cores = cores_for(threads)
    if cores is not None and sys.platform == "linux":
        os.sched_setaffinity(0, cores)
    limit_memory(memory_to_use())


def _give_up(reason: str) -> None:
    sys.stderr.write(reason + "\n")
    sys.exit(1)


def _ending(code: int, said: str) -> str:
    if code < 0:
        often = ", as happens when memory runs out" if -code == signal.SIGKILL else ""
        return f"the process was ended by {signal.Signals(-code).name}{often}"
    return last_words(said) or f"the process ended with exit code {code}"
