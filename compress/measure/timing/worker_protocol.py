"""The messages between a session and its workers, one JSON object a line, and how a subprocess serves them."""

import os
import sys
from collections.abc import Callable, Iterable
from typing import IO, Literal, TypeVar

from compress.errors import CompressError, DeviceUnavailable, MissingExtra
from compress.measure.interference import Interference
from compress.measure.result_base import ResultModel
from compress.measure.timing.latency import CallTimes, Job, Latency
from compress.measure.timing.process_limits import Cores, available_memory, choose_cores, ignore_sigint, limit_memory
from compress.measure.timing.schedule import Call

Send = Callable[[ResultModel], None]
"""Sends a reply to the process that started this one."""


class WorkerSpec(ResultModel):
    """The model to open and its inputs."""

    job: Job
    cores: Cores = Cores()
    """Those that the process is pinned to, and others to monitor."""
    calls: tuple[Call, ...]
    """Batches of texts; empty at a fixed length."""
    seed: int
    vocabulary: int | None = None
    """Number of word pieces that inputs of a fixed length are drawn from, the same for all jobs of a session; None: the
    model's own."""
    launched: float
    """When the process was started, in seconds since 1970."""
    imports: tuple[str, ...] = ()
    """Modules to import before it is pinned, so that several processes can start at once on all cores."""
    memory: int | None = None
    """Bytes of data that the process may allocate; None does not limit it."""


class Command(ResultModel):
    """What to do next.

    `warm_up` runs the calls until their times are steady, `turn` times them in full passes until the seconds are over,
    `load` runs a closed loop of several callers for so long, `close` reads the process's memory.
    """

    do: Literal["warm_up", "turn", "load", "close"]
    calls: tuple[int, ...] = ()
    seconds: float = 0.0
    callers: int = 1


class Task(ResultModel):
    """The input of a subprocess that runs one function: its device and threads, and what subclasses add."""

    device: Literal["cpu", "cuda"]
    threads: int


class Failure(ResultModel):
    """What a subprocess sends instead of a reply: the reason why there is none."""

    unsupported: str | None = None
    """The runtime or the device is not on this machine, or a library is not installed."""
    failed: str | None = None


class Reply(ResultModel):
    """A worker's reply; which fields are set depends on the command."""

    latency: Latency = Latency(status="measured")
    """Those fields of the job's result that the worker alone knows: of loading, of the lengths, or of memory."""
    imports: tuple[str, ...] = ()
    """The slow modules that opening the model imported."""
    call_seconds: float = 0.0
    weights: tuple[float, ...] = ()
    """How much each of the calls that were warmed up counts; empty where all count alike."""
    steady: bool = True
    """Whether warm-up ended with steady call times."""
    model: CallTimes = CallTimes()
    end_to_end: CallTimes = CallTimes()
    device: CallTimes = CallTimes()
    waits: tuple[float, ...] = ()
    """Milliseconds that callers waited."""
    seconds: float = 0.0
    """From the first caller's start to the last one's end."""
    joules: float | None = None
    """Consumed by `energy_calls` calls."""
    energy_calls: int = 0
    interference: Interference = Interference()


def serve(work: Callable[[IO[str], Send], None]) -> None:
    """Serve on this process's own stdin and stdout until ``work`` is done; output of libraries goes to stderr."""
    ignore_sigint()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(reply: ResultModel) -> None:
        replies.write(reply.model_dump_json() + "\n")
        replies.flush()

    try:
        work(sys.stdin, send)
    except (DeviceUnavailable, MissingExtra) as error:
        send(Failure(unsupported=error.full_message))
    except CompressError as error:
        send(Failure(failed=error.full_message))
    except MemoryError:
        send(Failure(failed="it does not fit in memory"))
    sys.stderr.flush()
    os._exit(0)  # shutting a runtime down takes the session's time and frees nothing that the system does not


AnyTask = TypeVar("AnyTask", bound=Task)


def serve_task(task_type: type[AnyTask], work: Callable[[AnyTask], Iterable[ResultModel]]) -> None:
    """Run one function: read its task, pin the process, limit its memory, and send each result as it is ready."""

    def answer(lines: IO[str], send: Send) -> None:
        task = task_type.model_validate_json(lines.readline())
        if task.device == "cpu":  # a CUDA driver reserves more addresses than there is memory, and has its own threads
            choose_cores(task.threads).pin()
            limit_memory(available_memory())
        for result in work(task):
            send(result)

    serve(answer)
