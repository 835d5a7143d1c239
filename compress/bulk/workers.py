"""A few processes that answer jobs, one each at a time; results come as they are ready.

A process of ours holds a model for as long as there is work. It ends with the process that started it, however that one
ended: its pipe closes. Its errors arrive as they are, and one that the system killed is an error too.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from multiprocessing import connection, get_context
from typing import Any, Generic, TypeVar

from compress.errors import CompressError, OutOfMemory, unexpected

Setup = TypeVar("Setup")
Job = TypeVar("Job")
Result = TypeVar("Result")

EXIT_SECONDS = 5.0


class _Worker(Generic[Setup, Job, Result]):
    def __init__(self, start: Callable[[Setup], Callable[[Job], Result]], setup: Setup) -> None:
        context = get_context("spawn")  # a fork would copy locks that threads of libraries hold
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, start, setup), daemon=True)
        self.process.start()
        theirs.close()  # so that this end sees when the process is gone

    def result(self) -> Result:
        """Return what its job gave; raises what its job raised."""
        try:
            ok, content = self.pipe.recv()
        except (EOFError, OSError) as error:
            self.process.join(EXIT_SECONDS)
            code = self.process.exitcode
            if code == -signal.SIGKILL:
                raise OutOfMemory(
                    "a worker was killed, as systems do when memory runs out.", hint="fewer --workers need less"
                ) from error
            raise CompressError(f"a worker ended with code {code}.") from error
        if ok:
            return content  # type: ignore[no-any-return]
        kind, message, hint = content
        failure = kind.__new__(kind)
        CompressError.__init__(failure, message, hint)
        raise failure

    def end(self) -> None:
        """Close its pipe, which ends it after its job."""
        self.pipe.close()
        self.process.join(EXIT_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def run_jobs(
    start: Callable[[Setup], Callable[[Job], Result]], setup: Setup, jobs: Iterable[Job], count: int
) -> Iterator[Result]:
    """Yield the results of jobs, as they are ready, from up to ``count`` processes.

    An error, also of ``jobs``, is raised after the results of the jobs that were under way.

    Args:
        start: called once in each process with ``setup``; returns what does a job. Both are found by name.
        setup: may be sent between processes, as jobs and results are.
        jobs: read as they are needed: one more than there are processes.
        count: of processes; one is started when there is a job for it.
    """
    source = _Ahead(jobs)
    if count > 1 and source.has_two:
        yield from _run_in_processes(_Pool(start, setup, count), source)
    elif source.has_next:
        yield from map(start(setup), source)  # another process would only take time to start
    elif source.failure is not None:
        raise source.failure


def _run_in_processes(pool: _Pool[Setup, Job, Result], source: _Ahead[Job]) -> Iterator[Result]:
    failure: CompressError | None = None
    try:
        while True:
            while failure is None and source.has_next and pool.has_room:
                pool.give(source.take())
            failure = failure or source.failure
            if not pool.busy:
                break
            for worker in pool.ready():
                try:
                    result = worker.result()
                except CompressError as error:
                    failure = failure or error
                else:
                    pool.idle.append(worker)
                    yield result
    finally:
        pool.end()
    if failure is not None:
        raise failure


class _Pool(Generic[Setup, Job, Result]):
    """Processes at work, and those that wait for it."""

    def __init__(self, start: Callable[[Setup], Callable[[Job], Result]], setup: Setup, count: int) -> None:
        self._start, self._setup, self._count = start, setup, count
        self._all: list[_Worker[Setup, Job, Result]] = []
        self.idle: list[_Worker[Setup, Job, Result]] = []
        self.busy: dict[Any, _Worker[Setup, Job, Result]] = {}
        """By their pipes."""

    @property
    def has_room(self) -> bool:
        """Whether another job can begin."""
        return bool(self.idle) or len(self._all) < self._count

    def give(self, job: Job) -> None:
        """Begin a job."""
        if not self.idle:
            self.idle.append(_Worker(self._start, self._setup))
            self._all.append(self.idle[-1])
        worker = self.idle.pop()
        self.busy[worker.pipe] = worker
        with suppress(BrokenPipeError):  # it is gone, which reading its result will say
            worker.pipe.send(job)

    def ready(self) -> list[_Worker[Setup, Job, Result]]:
        """Wait for workers that have a result, or are gone."""
        return [self.busy.pop(pipe) for pipe in connection.wait(list(self.busy))]

    def end(self) -> None:
        """End all processes."""
        for worker in self._all:
            worker.pipe.close()
        for worker in self._all:
            worker.end()


class _Ahead(Generic[Job]):
    """Jobs, of which the next is read before it is needed: while all processes are at work."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = iter(jobs)
        self._next: deque[Job] = deque()
        self.failure: CompressError | None = None

    @property
    def has_next(self) -> bool:
        """Whether there is another job."""
        return self._has(1)

    @property
    def has_two(self) -> bool:
        """Whether there are two more."""
        return self._has(2)

    def _has(self, count: int) -> bool:
        if len(self._next) < count and self.failure is None:
            try:
                self._next.extend(islice(self._jobs, count - len(self._next)))
            except CompressError as error:
                self.failure = error
        return len(self._next) >= count

    def take(self) -> Job:
        """Return the next job."""
        return self._next.popleft()

    def __iter__(self) -> Iterator[Job]:
        """Yield the jobs that are left; raises what reading them raised."""
        while self.has_next:
            yield self.take()
        if self.failure is not None:
            raise self.failure


def _serve(pipe: connection.Connection, start: Callable[[Any], Callable[[Any], Any]], setup: Any) -> None:
    """Answer jobs until the pipe closes. Ctrl-C is for the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    work: Callable[[Any], Any] | None = None
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            job = pipe.recv()
            try:
                work = work or start(setup)
                reply = True, work(job)
            except Exception as error:  # noqa: BLE001  sent to the process that asked
                failure = unexpected(error)
                reply = False, (type(failure), failure.message, failure.hint)
            pipe.send(reply)
