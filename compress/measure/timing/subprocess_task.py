"""Runs one function in a process of its own: one JSON object in, one out.

Machine limits and memory must be measured without the libraries that this process has loaded. The subprocess is pinned
to its cores and threads, is killed first when memory runs out, and ends with its parent.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from threading import Lock
from typing import Literal, NoReturn, TypeVar

from pydantic import ValidationError

from compress.errors import CompressError, OutOfMemory
from compress.measure.result_base import ResultModel
from compress.measure.timing.cpu_affinity import choose_cores
from compress.measure.timing.process_limits import available_memory, ignore_sigint, limit_memory
from compress.measure.timing.worker_process import describe_exit, error_line, worker_environment

OUT_OF_MEMORY = "it does not fit in memory"


class Task(ResultModel):
    """The input of a subprocess: its device and threads, and what subclasses add."""

    device: Literal["cpu", "cuda"]
    threads: int


AnyTask = TypeVar("AnyTask", bound=Task)
Result = TypeVar("Result", bound=ResultModel)


class SubprocessFailed(Exception):
    """The process returned no result; the message says why."""


class RunningProcesses:
    """Processes that several threads wait for, so that another can end them all: Ctrl-C reaches only one thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._processes: list[subprocess.Popen[str]] = []
        self._ended = False

    def add(self, process: subprocess.Popen[str]) -> None:
        """Add a process; it is killed at once if `end` was called before."""
        with self._lock:
            self._processes.append(process)
            if self._ended:
                process.kill()

    def end(self) -> None:
        """Kill all of them, and those that are added later."""
        with self._lock:
            self._ended = True
            for process in self._processes:
                process.kill()


def run_in_subprocess(
    module: str, task: Task, result: type[Result], timeout: float, running: RunningProcesses | None = None
) -> Result:
    """Run ``python -m module`` on ``task`` and return its result; raise `SubprocessFailed` if there is none.

    Args:
        module: one that calls `serve_subprocess` when it is run.
        task: goes to its stdin.
        result: the type of the JSON on its stdout.
        timeout: seconds after which it is killed.
        running: where the process is added, so that another thread can end it.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env=worker_environment(task.threads),
    )
    with process:
        try:
            (running or RunningProcesses()).add(process)
            output, errors = process.communicate(task.model_dump_json(), timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise SubprocessFailed(f"no result within {timeout:.0f} s") from None
        except BaseException:
            process.kill()  # otherwise leaving the block waits for it
            raise
    if process.returncode != 0:
        message = error_line(errors) if process.returncode > 0 else ""
        raise SubprocessFailed((message or describe_exit(process.returncode, errors)).removesuffix("."))
    try:
        return result.model_validate_json(output)
    except ValidationError as error:
        raise SubprocessFailed(f"the process returned an invalid result: {output[:80]!r}") from error


def serve_subprocess(task_type: type[AnyTask], work: Callable[[AnyTask], ResultModel]) -> None:
    """Run in the subprocess: read the task, pin the process, work, write the result; expected errors go to stderr."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of libraries goes to stderr
    ignore_sigint()
    task = task_type.model_validate_json(sys.stdin.read())
    if task.device == "cpu":  # a CUDA driver reserves more addresses than there is memory, and has threads of its own
        pin_and_limit(task.threads)
    try:
        result = work(task)
    except (MemoryError, OutOfMemory):
        _fail(OUT_OF_MEMORY)
    except CompressError as error:
        _fail(error.full_message)
    replies.write(result.model_dump_json())
    replies.close()


def pin_and_limit(threads: int) -> None:
    """Pin this process to ``threads`` cores and limit it to the available memory, where the system can (Linux)."""
    cores = choose_cores(threads)
    if cores is not None and sys.platform == "linux":
        os.sched_setaffinity(0, cores.own)
    limit_memory(available_memory())


def _fail(reason: str) -> NoReturn:
    sys.stderr.write(reason + "\n")
    sys.exit(1)
